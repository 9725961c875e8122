"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const number = head.dataset.kind === "number";
      const key = (row) => (number ? Number(row.cells[column].dataset.value) : row.cells[column].textContent);
      const rows = [...body.rows].sort((a, b) => {
        const one = key(a), other = key(b);
        const order = number ? one - other : one.localeCompare(other);
        return up ? order : -order;
      });
      body.append(...rows);
    });
  });
}
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details")) each.open = true;
});
