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
  // All is measured before anything is changed: each change lays out all pages anew.
  const measured = (selector, change) => {
    const found = [...document.querySelectorAll(`article :is(${selector})`)];
    const changes = found.map((element) => change(element));
    found.forEach((element, n) => Object.assign(element.style, changes[n]));
  };
  // A short cell stays on one line, a short block on one page.
  measured("td, th", (cell) =>
    cell.textContent.trim().length <= 20 ? { whiteSpace: "nowrap" } : {}
  );
  const blocks = "div.proof, div.exercise, div.admonition, div.claim, div.highlight";
  measured(blocks, (block) =>
    block.offsetHeight < 330 ? { breakInside: "avoid" } : {}
  );
  const wide = "div.math, .pst-scrollable-table-container, .text_html, pre";
  measured(wide, (box) => {
    const room = box.getBoundingClientRect().width;
    const share = Math.max(0.5, room / (box.scrollWidth + 2));
    return box.scrollWidth > room + 1 ? { zoom: share } : {};
  });
  const heads = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")];
  return heads
    .filter((head) => head.role !== "presentation" && head.checkVisibility())
    .map((head) => {
      const copy = head.cloneNode(true);
      copy.querySelectorAll("mjx-assistive-mml").forEach((e) => e.remove());
      return head.dataset.title || copy.textContent.replace(/\s+/g, " ").trim();
    });
}
