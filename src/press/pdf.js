// Typeset anew once the faces are there, shrink what is wider than the paper, and let every
// place that a link can name be found in the printed file.
async () => {
  await Promise.all([...document.fonts].map((face) => face.load()));
  if (window.MathJax?.startup?.promise) {
    await MathJax.startup.promise;
    MathJax.startup.document.rerender(MathJax._.core.MathItem.STATE.METRICS);
  }
  for (const claim of document.querySelectorAll(".claim details")) claim.open = true;
  for (const image of document.images) image.loading = "eager";
  await Promise.all([...document.images].map((image) => image.decode().catch(() => 0)));
  const article = document.querySelector("article") || document.body;
  // A short cell stays on one line, a short block on one page.
  for (const cell of article.querySelectorAll("td, th")) {
    if (cell.textContent.trim().length <= 20) cell.style.whiteSpace = "nowrap";
  }
  const blocks = "div.proof, div.exercise, div.admonition, div.claim, div.highlight";
  for (const block of article.querySelectorAll(blocks)) {
    if (block.offsetHeight < 330) block.style.breakInside = "avoid";
  }
  const wide = "div.math, .pst-scrollable-table-container, .text_html, pre";
  for (const box of article.querySelectorAll(wide)) {
    const room = box.getBoundingClientRect().width;
    if (box.scrollWidth > room + 1) {
      box.style.zoom = Math.max(0.5, room / (box.scrollWidth + 2));
    }
  }
  // A section begins where its box does, which may be the foot of the page before.
  const heads = [...article.querySelectorAll("section > :is(h1, h2, h3, h4, h5)")];
  const moved = {};
  heads.forEach((heading, n) => {
    heading.id ||= `heading-${n}`;
    moved[heading.parentElement.id] = heading.id;
    for (let e = heading.previousElementSibling; e; e = e.previousElementSibling) {
      if (e.id && !e.textContent) moved[e.id] = heading.id;
    }
  });
  const links = document.createElement("div");
  links.hidden = true;
  const places = article.querySelectorAll("[id]");
  const names = [...places].filter((e) => !e.closest("mjx-container")).map((e) => e.id);
  for (const name of names) {
    const link = document.createElement("a");
    link.href = "#" + encodeURIComponent(name);
    links.append(link);
  }
  document.body.append(links);
  const text = (heading) => {
    const copy = heading.cloneNode(true);
    copy.querySelectorAll(".headerlink, mjx-assistive-mml").forEach((e) => e.remove());
    return copy.textContent.replace(/\s+/g, " ").trim();
  };
  const headings = [...article.querySelectorAll("h1, h2")].map((heading) => ({
    level: Number(heading.tagName[1]),
    text: text(heading),
    name: heading.id,
  }));
  return { headings, moved };
}
