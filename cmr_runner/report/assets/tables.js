"use strict";
// The table of runs: sort by a heading, filter by words and by columns, tick what the charts draw.

const runRows = [...document.querySelectorAll("#runs tbody tr")];
const ticks = runRows.map((row) => row.querySelector("input"));
const picked = (run) => ticks[run].checked;
const pickedListeners = [];
const announcePicked = () => pickedListeners.forEach((listener) => listener());

function cellValue(row, column) {
  const text = row.cells[column].dataset.value;
  const number = text === "" ? NaN : Number(text);
  return Number.isNaN(number) ? text : number;
}

function compareValues(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return a.localeCompare(b, "en", { numeric: true });
  return typeof a === "number" ? -1 : 1;
}

const isEmpty = (value) => value === "" || value === "nan";

function sortRuns(heading) {
  const headings = [...heading.parentElement.cells];
  const ascending = heading.getAttribute("aria-sort") !== "ascending";
  headings.forEach((other) => other.hasAttribute("aria-sort") && other.setAttribute("aria-sort", "none"));
  heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const column = headings.indexOf(heading);
  const keyed = [...runRows].map((row) => [cellValue(row, column), row]);
  // Rows without a value come last whichever way the others go.
  keyed.sort(([a], [b]) => isEmpty(a) - isEmpty(b) || (ascending ? 1 : -1) * compareValues(a, b));
  document.querySelector("#runs tbody").append(...keyed.map(([, row]) => row));
}

function filterRuns() {
  const words = document.querySelector("#search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const selects = [...document.querySelectorAll("#column-filters select")].filter((select) => select.value !== "*");
  let shown = 0;
  for (const row of runRows) {
    const text = row.textContent.toLowerCase();
    const fits = words.every((word) => text.includes(word))
      && selects.every((select) => row.cells[select.dataset.column].dataset.value === select.value);
    row.hidden = !fits;
    shown += fits;
  }
  document.querySelector("#count").textContent = `${shown} of ${runRows.length} runs`;
}

document.querySelectorAll("#runs th[aria-sort]").forEach((heading) =>
  heading.querySelector("button").addEventListener("click", () => sortRuns(heading)));
document.querySelector("#search").addEventListener("input", filterRuns);
document.querySelector("#column-filters").addEventListener("change", filterRuns);
document.querySelector("#runs").addEventListener("change", announcePicked);
document.querySelector("#show-only").addEventListener("click", () => {
  ticks.forEach((tick, i) => { tick.checked = !runRows[i].hidden; });
  announcePicked();
});
document.querySelector("#show-all").addEventListener("click", () => {
  ticks.forEach((tick) => { tick.checked = true; });
  announcePicked();
});
filterRuns();
