// A click on the head of a column sorts its table, first upwards: numbers by size, "–" always last.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".sortable table")) {
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => {
      head.tabIndex = 0;
      head.setAttribute("role", "button");
      const sort = () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const key = (row) => row.cells[column].textContent.trim();
        const rows = [...body.rows].sort((a, b) => {
          const [x, y] = [key(a), key(b)];
          if (x === "–" || y === "–") return (x === "–") - (y === "–");
          const [n, m] = [parseFloat(x), parseFloat(y)];
          const order = isNaN(n) || isNaN(m) ? x.localeCompare(y) : n - m;
          return up ? order : -order;
        });
        body.append(...rows);
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
    });
  }
});
