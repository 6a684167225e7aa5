"use strict";
for (const listing of document.querySelectorAll(".listing")) {
  const form = listing.querySelector("form");
  if (!form) continue;
  const rows = [...listing.querySelectorAll("tbody tr:not(.fold)")];
  const folds = new Map([...listing.querySelectorAll("tr.fold")].map((fold) => [fold.dataset.fold, fold]));
  const opened = new Set();
  const texts = new Map();
  const search = form.querySelector("input");
  const selects = [...form.querySelectorAll("select")];
  const status = listing.querySelector(".status");
  const more = listing.querySelector(".more");
  const number = new Intl.NumberFormat("en");
  const STEP = 200;
  let most = STEP;

  // What a history tells is of other runs: a search is about what the row says.
  const wordsOf = (row) => {
    const copy = row.cloneNode(true);
    for (const each of copy.querySelectorAll(".history")) each.remove();
    return copy.textContent.toLowerCase();
  };
  const textOf = (row) => {
    if (!texts.has(row)) texts.set(row, wordsOf(row));
    return texts.get(row);
  };
  const update = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = selects.filter((each) => each.value !== "").map((each) => ["data-" + each.dataset.filter, each.value]);
    const folding = !words.length && !chosen.length;
    const passed = new Set();
    let found = 0;
    let folded = 0;
    for (const row of rows) {
      const fits =
        chosen.every(([name, value]) => row.getAttribute(name) === value) &&
        words.every((word) => textOf(row).includes(word));
      found += fits;
      const alike = row.dataset.alike;
      const fold = folds.get(alike);
      const behind = folding && passed.has(alike) && !opened.has(alike);
      folded += behind;
      row.hidden = !fits || behind || found - folded > most;
      if (fold && row.nextElementSibling === fold) {
        passed.add(alike);
        fold.hidden = !folding || opened.has(alike) || row.hidden;
      }
    }
    const unfolded = found - folded;
    const shown = Math.min(unfolded, most);
    const of = found === rows.length ? "" : ` of ${number.format(rows.length)}`;
    status.textContent =
      found === 0
        ? "No row matches: shorten the search, or clear the filters."
        : `${number.format(found)}${of} ${rows.length === 1 ? "row" : "rows"}${folded ? `, ${number.format(folded)} of them folded` : ""}${shown < unfolded ? `, the first ${number.format(shown)} shown` : ""}`;
    more.hidden = shown === unfolded;
  };
  const anew = () => {
    most = STEP;
    update();
  };

  let waiting;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(anew, 120);
  });
  for (const each of selects) each.addEventListener("change", anew);
  for (const [alike, fold] of folds) {
    fold.querySelector("button").addEventListener("click", () => {
      opened.add(alike);
      update();
      const next = fold.nextElementSibling;
      next.tabIndex = -1;
      next.focus();
    });
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(anew));
  more.addEventListener("click", (event) => {
    const step = event.target.dataset.more;
    if (!step) return;
    most = step === "all" ? Infinity : most + STEP;
    update();
  });
  for (const link of document.querySelectorAll(`a[data-show="${listing.dataset.listing}"]`)) {
    link.addEventListener("click", () => {
      search.value = "";
      for (const each of selects) {
        const value = link.getAttribute("data-" + each.dataset.label);
        const known = [...each.options].some((option) => option.value === value);
        each.value = value !== null && known ? value : "";
      }
      anew();
      listing.querySelector("h2").focus();
    });
  }
  update();
}
