/* Previews of theorems, equations, terms and works at the links to them.
   The data is written by src/press/ext/previews.py and loaded at the first hover. */
(() => {
  "use strict";
  const canHover = window.matchMedia("(hover: hover)").matches;
  const root = new URL(
    document.documentElement.dataset.content_root || "./",
    document.baseURI
  );
  let data = null;
  let box = null;
  let timer = 0;
  let owner = null;

  function load() {
    if (!data) {
      data = new Promise((resolve) => {
        const script = document.createElement("script");
        script.src = new URL("_static/previews-data.js", root).href;
        script.onload = () => resolve(window.bookPreviews || {});
        script.onerror = () => resolve({});
        document.head.append(script);
      });
    }
    return data;
  }

  function key(link) {
    const address = new URL(link.href, document.baseURI);
    if (!address.hash || !address.pathname.startsWith(root.pathname)) return null;
    const page = address.pathname.slice(root.pathname.length);
    return decodeURIComponent(page) + decodeURIComponent(address.hash);
  }

  function hide() {
    clearTimeout(timer);
    if (owner) owner.removeAttribute("aria-describedby");
    owner = null;
    if (box) box.remove();
    box = null;
  }

  function place(link) {
    const at = link.getBoundingClientRect();
    const size = box.getBoundingClientRect();
    const space = document.documentElement;
    const left = Math.max(8, Math.min(at.left, space.clientWidth - size.width - 8));
    const below = at.bottom + 8;
    const above = at.top - size.height - 8;
    const fits = below + size.height <= space.clientHeight || above < 8;
    box.style.left = `${left + window.scrollX}px`;
    box.style.top = `${(fits ? below : above) + window.scrollY}px`;
  }

  async function show(link) {
    const name = key(link);
    if (!name) return;
    const html = (await load())[name];
    if (!html || owner !== link) return;
    box = document.createElement("div");
    box.className = "book-preview bd-article";
    box.id = "book-preview";
    box.setAttribute("role", "tooltip");
    box.innerHTML = html;
    for (const image of box.querySelectorAll("[data-book-src]")) {
      image.src = new URL(image.dataset.bookSrc, root).href;
    }
    box.addEventListener("mouseenter", () => clearTimeout(timer));
    box.addEventListener("mouseleave", () => (timer = setTimeout(hide, 200)));
    document.body.append(box);
    link.setAttribute("aria-describedby", box.id);
    place(link);
    if (window.MathJax && MathJax.typesetPromise) {
      const shown = box;
      await MathJax.typesetPromise([shown]).catch(() => {});
      if (box === shown && owner === link) place(link);
    }
  }

  function enter(event) {
    const link = event.target.closest("a.internal, a.sphinx-codeautolink-a");
    if (!link || !link.closest("article") || !link.hash) return;
    if (link.classList.contains("headerlink") || link.querySelector("img")) return;
    if (owner === link) {
      clearTimeout(timer);
      return;
    }
    hide();
    owner = link;
    timer = setTimeout(() => show(link), 250);
  }

  function leave(event) {
    if (owner && event.target.closest("a") === owner) {
      clearTimeout(timer);
      timer = setTimeout(hide, 200);
    }
  }

  if (canHover) {
    document.addEventListener("mouseover", enter);
    document.addEventListener("mouseout", leave);
  }
  document.addEventListener("focusin", enter);
  document.addEventListener("focusout", leave);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
})();
