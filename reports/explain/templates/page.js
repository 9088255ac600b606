"use strict";
// What shares a key belongs together: a forward operation, what differentiates it, and what became of both.
const byKey = new Map();
const keysOf = (part) => part.dataset.keys.split(" ");
for (const part of document.querySelectorAll("[data-keys]")) {
  for (const key of keysOf(part)) {
    if (!byKey.has(key)) byKey.set(key, new Set());
    byKey.get(key).add(part);
  }
}
const together = (part) => new Set(keysOf(part).flatMap((key) => [...byKey.get(key)]));
let lit = new Set(), kept = new Set();
const light = (parts) => {
  for (const part of lit) if (!kept.has(part)) part.classList.remove("lit");
  lit = parts;
  for (const part of lit) part.classList.add("lit");
};
const partOf = (target) => target instanceof Element && target.closest("[data-keys]");
document.addEventListener("mouseover", (event) => {
  const part = partOf(event.target);
  light(part ? together(part) : new Set());
});
// A click keeps the light on, and says where it shines.
const where = document.getElementById("where");
const nameOf = (part) =>
  (part.tagName === "TR" ? part.cells[0] : part.querySelector("summary") || part).textContent.trim();
const keep = (part) => {
  for (const other of kept) other.classList.remove("lit", "kept");
  kept = part ? together(part) : new Set();
  where.hidden = kept.size === 0;
  if (!part) return;
  for (const other of kept) other.classList.add("lit");
  part.classList.add("kept");
  const list = document.createElement("dl");
  for (const section of document.querySelectorAll("section")) {
    const here = [...kept].filter((other) => section.contains(other) && other.id);
    if (!here.length) continue;
    const stage = document.createElement("dt");
    stage.textContent = section.dataset.stage;
    const places = document.createElement("dd");
    for (const other of here) {
      const link = document.createElement("a");
      link.href = `#${encodeURIComponent(other.id)}`;
      link.textContent = nameOf(other);
      places.append(link, " ");
    }
    list.append(stage, places);
  }
  where.lastElementChild.replaceChildren(list);
};
where.querySelector("button").addEventListener("click", () => keep(null));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") keep(null);
});
// A link into what is folded opens it first.
const open = (hash) => {
  const target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
};
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']");
  if (link) {
    open(link.hash);
    return;
  }
  const part = partOf(event.target);
  if (part && part.tagName !== "DETAILS" && String(getSelection()) === "") keep(part);
});
window.addEventListener("hashchange", () => open(location.hash));
open(location.hash);
