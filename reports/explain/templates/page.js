"use strict";
// Rows with the same tie belong together: a forward operation, what differentiates it, and what became of both.
const tied = new Map();
for (const row of document.querySelectorAll("tr[data-tie]")) {
  if (!tied.has(row.dataset.tie)) tied.set(row.dataset.tie, []);
  tied.get(row.dataset.tie).push(row);
}
const light = (row, on) => {
  for (const other of tied.get(row.dataset.tie) || []) other.classList.toggle("lit", on);
};
for (const rows of tied.values()) {
  for (const row of rows) {
    row.addEventListener("mouseenter", () => light(row, true));
    row.addEventListener("mouseleave", () => light(row, false));
  }
}
// A link into a folded listing opens it.
const open = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
};
window.addEventListener("hashchange", open);
open();
