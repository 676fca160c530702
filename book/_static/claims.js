/* Search and filters of the claims ledger (src/press/ext/claims_ledger.py).

   A claim is shown if it has the class of every choice and all the words, or phrases in
   quotation marks; "beta" is also β. The one that the address names is shown and
   unfolded whatever is chosen; printing unfolds all. */
(() => {
  "use strict";
  const GREEK = { α: "alpha", β: "beta", γ: "gamma", δ: "delta", ε: "epsilon",
    κ: "kappa", λ: "lambda", μ: "mu", ρ: "rho", σ: "sigma", τ: "tau" };
  const plain = (text) => text.toLowerCase().replace(/\s+/g, " ");
  const named = (text) => `${text} ${[...text].map((sign) => GREEK[sign]).join(" ")}`;

  /* A test for one word, or for a phrase that no letter or number continues. */
  function sought(word) {
    if (!/^".+"$/.test(word)) return (text) => text.includes(word.replaceAll(`"`, ""));
    const phrase = word.slice(1, -1).replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const alone = new RegExp(`(?<!\\w)${phrase}(?!\\w|\\.\\d)`);
    return (text) => alone.test(text);
  }

  function unfoldTarget() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const details = target?.matches("div.claim") && target.querySelector("details");
    if (details) details.open = true;
  }

  addEventListener("DOMContentLoaded", () => {
    const form = document.querySelector("form.claims-filter");
    if (!form) return;
    const claims = [...document.querySelectorAll("div.claim")];
    const texts = claims.map((claim) => named(plain(claim.textContent)));
    const sections = new Set(claims.map((claim) => claim.closest("section")));

    function show() {
      const chosen = [...form.querySelectorAll("select")].map((s) => s.value);
      const classes = chosen.filter(Boolean);
      const written = plain(form.elements.words.value);
      const words = (written.match(/"[^"]+"|\S+/g) ?? []).map(sought);
      let shown = 0;
      claims.forEach((claim, n) => {
        const fits =
          classes.every((name) => claim.classList.contains(name)) &&
          words.every((finds) => finds(texts[n]));
        claim.classList.toggle("claim-hidden", !fits);
        shown += fits;
      });
      for (const section of sections) {
        const none = !section.querySelector("div.claim:not(.claim-hidden)");
        section.classList.toggle("claims-none", none);
      }
      form.querySelector("output").textContent = `${shown} of ${claims.length} claims`;
    }

    form.hidden = false;
    form.addEventListener("input", show);
    form.addEventListener("reset", () => setTimeout(show));
    form.addEventListener("submit", (event) => event.preventDefault());
    addEventListener("hashchange", unfoldTarget);
    addEventListener("beforeprint", () => {
      for (const claim of claims) claim.querySelector("details").open = true;
    });
    show();
    unfoldTarget();
  });
})();
