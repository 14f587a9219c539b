(() => {
  "use strict";
  const text = new Intl.Collator("en", { numeric: true });
  const FEW = 10;

  // Ids are decimal or 32 hex digits, and are ordered as unsigned 128-bit numbers; counts may
  // exceed what a double holds. What is empty comes last in both directions.
  const key = (cell, kind) => {
    const shown = cell.dataset.v ?? cell.textContent.trim();
    if (shown === "" || shown === "\u2013") return null;
    if (kind === "id") {
      return /^[0-9]{1,20}$/.test(shown) ? BigInt(shown).toString(16).padStart(32, "0") : shown;
    }
    if (kind !== "n") return shown;
    const plain = shown.replace(/[,%\s]/g, "");
    return /^-?[0-9]+$/.test(plain) ? BigInt(plain) : Number(plain);
  };
  const compare = (a, b, kind) =>
    kind === "t" ? text.compare(a, b) : a < b ? -1 : a > b ? 1 : 0;

  const sort = (table, head, at) => {
    const kind = head.dataset.k;
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : kind === "n";
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [key(row.cells[at], kind), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return down ? compare(b, a, kind) : compare(a, b, kind);
    });
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows.map(([, row]) => row));
  };

  const filter = (table, scroll) => {
    const rows = [...table.tBodies[0].rows];
    if (rows.length <= FEW) return;
    const box = document.createElement("label");
    const input = document.createElement("input");
    const state = document.createElement("output");
    box.className = "filter";
    input.type = "search";
    box.append("Filter rows ", input, state);
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      let left = 0;
      for (const row of rows) {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
        left += row.hidden ? 0 : 1;
      }
      state.textContent = wanted ? ` ${left} of ${rows.length} rows on this page` : "";
    });
    scroll.before(box);
  };

  for (const table of document.querySelectorAll("table")) {
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(table, head, at));
      head.append(button);
    });
    filter(table, table.parentElement);
  }
})();
