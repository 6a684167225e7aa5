"use strict";
for (const listing of document.querySelectorAll(".listing")) {
  const form = listing.querySelector("form");
  if (!form) continue;
  const rows = [...listing.querySelectorAll("tbody tr")];
  const texts = new Map();
  const search = form.querySelector("input");
  const selects = [...form.querySelectorAll("select")];
  const status = listing.querySelector(".status");
  const more = listing.querySelector(".more");
  const number = new Intl.NumberFormat("en");
  const STEP = 200;
  let most = STEP;

  const textOf = (row) => {
    if (!texts.has(row)) texts.set(row, row.textContent.toLowerCase());
    return texts.get(row);
  };
  const update = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = selects.filter((each) => each.value !== "").map((each) => ["data-" + each.dataset.filter, each.value]);
    let found = 0;
    for (const row of rows) {
      const fits =
        chosen.every(([name, value]) => row.getAttribute(name) === value) &&
        words.every((word) => textOf(row).includes(word));
      found += fits;
      row.hidden = !fits || found > most;
    }
    const shown = Math.min(found, most);
    const of = found === rows.length ? "" : ` of ${number.format(rows.length)}`;
    status.textContent =
      found === 0
        ? "No row fits: search for less, or clear the filters."
        : `${number.format(found)}${of} ${rows.length === 1 ? "row" : "rows"}${shown < found ? `, the first ${number.format(shown)} shown` : ""}`;
    more.hidden = shown === found;
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
