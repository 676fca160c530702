// Typeset anew once the faces are there, and shrink what is wider than the paper. Return
// the titles of the outline.
async () => {
  await Promise.all([...document.fonts].map((face) => face.load()));
  if (window.MathJax?.startup?.promise) {
    await MathJax.startup.promise;
    MathJax.startup.document.rerender(MathJax._.core.MathItem.STATE.METRICS);
  }
  for (const claim of document.querySelectorAll(".claim details")) claim.open = true;
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map((image) => image.decode().catch(() => 0)));
  // A short cell stays on one line, a short block on one page.
  for (const cell of document.querySelectorAll("article :is(td, th)")) {
    if (cell.textContent.trim().length <= 20) cell.style.whiteSpace = "nowrap";
  }
  const blocks = "div.proof, div.exercise, div.admonition, div.claim, div.highlight";
  for (const block of document.querySelectorAll(`article :is(${blocks})`)) {
    if (block.offsetHeight < 330) block.style.breakInside = "avoid";
  }
  const wide = "div.math, .pst-scrollable-table-container, .text_html, pre";
  for (const box of document.querySelectorAll(`article :is(${wide})`)) {
    const room = box.getBoundingClientRect().width;
    if (box.scrollWidth > room + 1) {
      box.style.zoom = Math.max(0.5, room / (box.scrollWidth + 2));
    }
  }
  const heads = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")];
  return heads
    .filter((head) => head.role !== "presentation" && head.checkVisibility())
    .map((head) => {
      const copy = head.cloneNode(true);
      copy.querySelectorAll("mjx-assistive-mml").forEach((e) => e.remove());
      return head.dataset.title || copy.textContent.replace(/\s+/g, " ").trim();
    });
}
