"use strict";
// The page can be read without this script. With it tables can be sorted, and the dots, curves and rows of one candidate point at each other.
(() => {
  const key = (cell) => {
    const value = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number(value);
    return value !== "" && Number.isFinite(number) ? number : value;
  };
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  const sort = (head) => {
    const table = head.closest("table");
    const column = [...head.parentNode.children].indexOf(head);
    const falling = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const body = table.tBodies[0];
    const rows = [...body.rows].sort((a, b) => order(key(a.cells[column]), key(b.cells[column])) * (falling ? -1 : 1));
    body.append(...rows);
  };
  const prepare = () => {
    for (const head of document.querySelectorAll("table.sortable thead th")) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(head));
      head.append(button);
    }
    for (const section of document.querySelectorAll(".group")) {
      const reading = section.querySelector(".reading");
      let held = null;
      const show = (candidate) => {
        section.classList.toggle("dimmed", candidate !== null);
        let text = "";
        for (const part of section.querySelectorAll("[data-candidate]")) {
          const same = part.dataset.candidate === candidate;
          part.classList.toggle("chosen", same);
          if (same && part.dataset.text) text = part.dataset.text;
        }
        if (reading) reading.textContent = text;
      };
      const hold = (candidate) => show((held = held === candidate ? null : candidate));
      for (const part of section.querySelectorAll("[data-candidate]")) {
        const { candidate } = part.dataset;
        part.addEventListener("mouseenter", () => show(candidate));
        part.addEventListener("mouseleave", () => show(held));
        part.addEventListener("click", () => hold(candidate));
        part.addEventListener("keydown", (event) => {
          if (event.key === "Enter" || event.key === " ") { event.preventDefault(); hold(candidate); }
        });
      }
    }
  };
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", unfold);
  // A served page puts new contents in place of the old ones.
  addEventListener("imas:contents", prepare);
  prepare();
  unfold();
})();
