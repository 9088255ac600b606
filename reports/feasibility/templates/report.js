"use strict";
// Sorts the table by the column whose heading is clicked; what has no value stands last in either direction.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const value = (row, column) => {
    const text = row.cells[column].dataset.value;
    return text === undefined ? row.cells[column].textContent.trim() : text === "" ? null : Number(text);
  };
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const compare = (a, b) => {
        const x = value(a, column), y = value(b, column);
        if (x === null || y === null) return (x === null) - (y === null);
        const order = typeof x === "number" ? x - y : x.localeCompare(y);
        return up ? order : -order;
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
}
// Shows only the models that hold every word of the filter: in the table, the charts and the sections.
const filter = document.getElementById("filter");
const rows = [...document.querySelectorAll("tr[data-words]")];
filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fit = (row) => words.every((word) => row.dataset.words.toLowerCase().includes(word));
  const names = new Set(rows.filter(fit).map((row) => row.dataset.name));
  for (const part of document.querySelectorAll("[data-name]")) part.hidden = !names.has(part.dataset.name);
  document.getElementById("shown").textContent = `${names.size} of ${rows.length} models`;
  document.getElementById("none").hidden = names.size > 0;
});
// A link to a model opens its section, also where the address has been the same before.
const open = (hash) => {
  const target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
};
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link) open(link.hash);
});
window.addEventListener("hashchange", () => open(location.hash));
open(location.hash);
// Paper shows every section.
let closed = [];
window.addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const part of closed) part.open = true;
});
window.addEventListener("afterprint", () => {
  for (const part of closed) part.open = false;
});
