// Sorts the tables of a page by their columns: a button in each heading, with the mouse and with the keyboard. Tables of
// runs are sorted by the server, which has all their rows. A link to something folded opens it.
"use strict";
(() => {
  const SORTED = "table:not(.runs):not(.seeds):not(.map)";
  const NUMBER = /^[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?/i, CLOCK = /^\d+(?::\d\d)+$/, DAY = /^\d{4}-\d\d/;
  const orders = new Map(); // place of a table and of a column in the page -> its order

  const text = (row, at) => (row.cells[at] ? row.cells[at].innerText ?? row.cells[at].textContent : "").trim();

  // The value of a cell; null where it is empty or no number among numbers.
  function value(cell, numbers) {
    if (cell === "" || cell === "–") return null;
    if (!numbers) return cell;
    if (CLOCK.test(cell)) return cell.split(":").reduce((sum, part) => 60 * sum + Number(part), 0);
    const found = NUMBER.exec(cell);
    return found ? Number(found[0].replace("−", "-").replaceAll(",", "")) : null;
  }

  function sort(table, at, direction) {
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
      rows.forEach((row, place) => { row.dataset.place ??= String(place); });
      const cells = rows.map((row) => text(row, at));
      const filled = cells.filter((cell) => cell !== "" && cell !== "–");
      const numbers = filled.length > 0 && filled.every((cell) => !DAY.test(cell) && (NUMBER.test(cell) || CLOCK.test(cell)));
      const compare = ([a, row], [b, other]) => {
        const tie = Number(row.dataset.place) - Number(other.dataset.place);
        if (!direction) return tie;
        if (a === null || b === null) return a === b ? tie : a === null ? 1 : -1; // empty ones last
        const order = numbers ? a - b : a.localeCompare(b, undefined, { numeric: true });
        return direction * order || tie;
      };
      const keyed = rows.map((row, place) => [value(cells[place], numbers), row]).sort(compare);
      body.append(...keyed.map(([, row]) => row));
    }
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      const chosen = place === at && direction;
      if (chosen) head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
      const mark = head.querySelector(".sort > span");
      if (mark) mark.textContent = chosen ? (direction > 0 ? " ▲" : " ▼") : "";
    });
  }

  function prepare() {
    const parts = new Map();
    for (const table of document.querySelectorAll(SORTED)) {
      const head = table.tHead?.rows[0];
      const part = table.closest("[data-live-part]")?.id ?? "";
      const number = parts.get(part) ?? 0;
      parts.set(part, number + 1);
      if (!head || table.tHead.rows.length > 1 || [...table.tBodies].every((body) => body.rows.length < 2)) continue;
      const key = `${part} ${number}`;
      [...head.cells].forEach((cell, at) => {
        if (cell.tagName !== "TH" || cell.querySelector("button, a, svg") || !cell.textContent.trim()) return;
        const button = document.createElement("button");
        button.type = "button";
        button.className = "sort";
        button.append(...cell.childNodes);
        const mark = document.createElement("span");
        mark.setAttribute("aria-hidden", "true");
        button.append(mark);
        cell.append(button);
        button.addEventListener("click", () => {
          const [before, direction] = orders.get(key) ?? [at, 0];
          const next = before !== at ? 1 : direction === 0 ? 1 : direction > 0 ? -1 : 0;
          orders.set(key, [at, next]);
          sort(table, at, next);
        });
      });
      const known = orders.get(key);
      if (known && known[1]) sort(table, ...known);
    }
  }

  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let one = target?.closest("details"); one; one = one.parentElement?.closest("details")) one.open = true;
    if (target?.closest("details")) target.scrollIntoView();
  }

  prepare();
  reveal();
  addEventListener("hashchange", reveal);
  document.addEventListener("ledgerchange", prepare);
})();
