/* What a pointer can scroll or unfold, the keyboard reaches and a screen reader names.

   The theme lets code and tables that are wider than the screen be focused. Formulas
   scroll here too (book.css), so they get the same; what fits stays out of
   the tab order. The buttons that unfold solutions say which one, and whether it is
   open. */
(() => {
  "use strict";
  const WIDE = [
    ["div.math, div.math mjx-container", "Formula, scrolls sideways"],
    ["span.math, span.unbroken", "Formula, scrolls sideways"],
    [".cell_output .text_html", "Table, scrolls sideways"],
    [".pst-scrollable-table-container", "Table, scrolls sideways"],
  ];

  function scrolls(element) {
    const way = getComputedStyle(element).overflowX;
    return (
      (way === "auto" || way === "scroll") &&
      element.scrollWidth > element.clientWidth
    );
  }

  // On a telephone (book.css) a formula that is a little too wide is set smaller, so
  // that it need not scroll; letters stay above ten pixels.
  const SMALLEST = 0.72;

  function fitFormulas(article) {
    const boxes = [...article.querySelectorAll('mjx-container[display="true"]')];
    for (const box of boxes) box.style.removeProperty("--fit");
    const shares = boxes.map((box) => {
      const drawn = box.querySelector("svg")?.getBoundingClientRect().width;
      return drawn && box.clientWidth ? (box.clientWidth - 1) / drawn : 1;
    });
    boxes.forEach((box, place) => {
      if (shares[place] < 1) {
        box.style.setProperty("--fit", Math.max(shares[place], SMALLEST).toFixed(3));
      }
    });
  }

  function reachWide() {
    const article = document.querySelector("article");
    if (!article) return;
    fitFormulas(article);
    for (const [selector, name] of WIDE) {
      for (const element of article.querySelectorAll(selector)) {
        if (scrolls(element)) {
          element.tabIndex = 0;
          element.dataset.reach = "";
          if (!element.hasAttribute("role")) {
            element.setAttribute("role", "group");
            element.setAttribute("aria-label", name);
          }
        } else if ("reach" in element.dataset) {
          element.removeAttribute("tabindex");
          delete element.dataset.reach;
        }
      }
    }
  }

  function nameSolutions() {
    for (const button of document.querySelectorAll("article button.toggle-button")) {
      const block = button.closest(".admonition");
      const title = block.querySelector(".admonition-title");
      const text = title.textContent.replace(/\s+/g, " ").trim();
      button.setAttribute("aria-label", `Unfold: ${text}`);
      const tell = () => {
        const open = !block.classList.contains("toggle-hidden");
        button.setAttribute("aria-expanded", String(open));
      };
      new MutationObserver(tell).observe(block, { attributeFilter: ["class"] });
      tell();
    }
  }

  // A list's children are its items; docutils gives them another role.
  function listWorks() {
    for (const work of document.querySelectorAll(".citation-list[role=list] > *")) {
      work.setAttribute("role", "listitem");
    }
  }

  let timer = 0;
  function soon() {
    clearTimeout(timer);
    timer = setTimeout(reachWide, 150);
  }

  addEventListener("load", () => {
    nameSolutions();
    listWorks();
    reachWide();
    const article = document.querySelector("article");
    // Formulas that are typeset, code that is unfolded, a screen that is turned.
    if (article) new ResizeObserver(soon).observe(article);
    window.MathJax?.startup?.promise?.then(soon);
  });
  addEventListener("resize", soon);
})();
