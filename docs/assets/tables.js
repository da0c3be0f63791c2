// Tables: a click on a head sorts, filters choose rows, a click on a recipe of the arena shows its seeds and curves.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".sortable table").forEach(makeSortable);
  document.querySelectorAll(".filters").forEach(makeFilters);
  document.querySelectorAll("[data-finals]").forEach(showSeeds);
});

function pressed(element, act) {
  element.tabIndex = 0;
  element.setAttribute("role", "button");
  element.addEventListener("click", act);
  element.addEventListener("keydown", (event) => event.key === "Enter" && act());
}

// First upwards: numbers by size, "–" and nothing always last.
function makeSortable(table) {
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, column) => pressed(head, () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    table.querySelectorAll("tr.seeds").forEach((row) => row.remove());
    const key = (row) => row.cells[column].textContent.trim();
    const missing = (text) => text === "–" || text === "";
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (missing(x) || missing(y)) return missing(x) - missing(y);
      const [n, m] = [parseFloat(x), parseFloat(y)];
      const order = isNaN(n) || isNaN(m) ? x.localeCompare(y) : n - m;
      return up ? order : -order;
    }));
  }));
}

// <div class="filters" data-by="verdict lag" data-words="m2po"> chooses among the rows of all ".block"s. A row's
// values are those of its column of that name, else of its block's data: "16, 64" are two, "invalid: tuned" is
// "invalid". Without either a row stays. data-methods="m2po vcpo": a row's methods are those that it or its title
// names. Fields start as the address says: ?lag=64&method=m2po.
function makeFilters(bar) {
  const methods = new Set((bar.dataset.methods ?? "").split(" "));
  const names = [...bar.dataset.by.split(" "), ...(bar.dataset.methods ? ["method"] : [])];
  const entries = [...document.querySelectorAll(".block")].flatMap((block) => {
    const table = block.querySelector("table");
    const heads = table ? [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim()) : [];
    const title = block.querySelector("h2, h3")?.textContent ?? "";
    return (table ? [...table.tBodies[0].rows] : [null]).map((row) => {
      const text = (name) => (heads.includes(name) ? row.cells[heads.indexOf(name)].textContent : block.dataset[name]);
      const values = (said) => said?.split(", ").map((each) => each.split(/[:;(]/)[0].trim()).filter((each) => each);
      const of = Object.fromEntries(names.map((name) => [name, values(text(name))]));
      const words = [title, ...[...row?.cells ?? []].map((cell) => cell.textContent)].join(" ").toLowerCase();
      if (row && bar.dataset.methods) of.method = words.split(/[^a-z0-9_@]+/).filter((word) => methods.has(word));
      return { block, row, of, words };
    });
  });
  const given = new URLSearchParams(location.search);
  const form = bar.appendChild(document.createElement("form"));
  const field = (name, element) => {
    const label = form.appendChild(document.createElement("label"));
    label.append(`${name} `, element);
    element.name = name;
    return element;
  };
  const selects = names.map((name) => {
    const options = [...new Set(entries.flatMap((entry) => entry.of[name] ?? []))];
    options.sort((a, b) => a - b || a.localeCompare(b));
    const select = field(name, document.createElement("select"));
    select.append(new Option("all", ""), ...options.map((option) => new Option(option, option)));
    select.value = options.includes(given.get(name)) ? given.get(name) : "";
    return select;
  });
  const words = field("words", document.createElement("input"));
  Object.assign(words, { type: "search", placeholder: bar.dataset.words, value: given.get("words") ?? "" });
  const count = form.appendChild(document.createElement("output"));
  const filter = () => {
    const wanted = words.value.toLowerCase().split(/[\s,]+/).filter((word) => word);
    const chosen = selects.filter((select) => select.value);
    const fits = (entry) => chosen.every(({ name, value }) => entry.of[name]?.includes(value) ?? true) &&
      (!entry.row || !wanted.length || wanted.some((word) => entry.words.includes(word)));
    const shown = new Set(entries.filter(fits));
    document.querySelectorAll("tr.seeds").forEach((row) => row.remove());
    entries.filter((entry) => entry.row).forEach((entry) => { entry.row.hidden = !shown.has(entry); });
    const blocks = new Set([...shown].map((entry) => entry.block));
    entries.forEach(({ block }) => { block.hidden = !blocks.has(block); });
    const rows = entries.filter((entry) => entry.row);
    count.textContent = `${rows.filter((entry) => shown.has(entry)).length} of ${rows.length} rows`;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}

// data-finals="grpo:837 694;vcpo:…": thousandths of final accuracy, a number per seed; data-curves the same, a
// number per measurement. A click on a recipe opens both, beside those of tuned GRPO and of fresh data.
function showSeeds(block) {
  const read = (text) => Object.fromEntries((text ?? "").split(";").filter((part) => part).map((part) => {
    const [name, values] = part.split(":");
    return [name, values.split(" ").map((each) => each / 1000)];
  }));
  const [finals, curves] = [read(block.dataset.finals), read(block.dataset.curves)];
  for (const row of block.querySelectorAll("tbody tr")) {
    const arm = row.cells[0].textContent.trim();
    if (!finals[arm]) continue;
    pressed(row.cells[0], () => {
      if (row.nextElementSibling?.className === "seeds") return row.nextElementSibling.remove();
      const opened = row.parentNode.insertBefore(document.createElement("tr"), row.nextElementSibling);
      opened.className = "seeds";
      const cell = opened.appendChild(document.createElement("td"));
      cell.colSpan = row.cells.length;
      const kept = (of, ...names) => [...new Set(names)].filter((name) => of[name]).map((name) => [name, of[name]]);
      const lines = kept(curves, arm, `${arm} at one setting`, "grpo", "fresh");
      cell.innerHTML = strips(kept(finals, arm, "grpo", "fresh")) + (curves[arm] ? drawn(lines, arm) : "");
    });
  }
}

function drawn(rows, arm) {
  const [x, y] = [(share) => 100 + 440 * share, (value) => 130 - 120 * value];
  const ticks = [0, 0.5, 1].map((tick) =>
    `<path d="M100 ${y(tick)}H540" class="rule"/><text x="92" y="${y(tick) + 4}" class="name">${tick}</text>`);
  const lines = rows.map(([name, values], place) => {
    const kind = name === arm ? "own" : name.startsWith(arm) ? "one" : name;
    const points = values.map((value, at) => `${x(at / (values.length - 1))} ${y(value)}`).join("L");
    const [left, down] = [100 + 220 * (place % 2), 166 + 18 * Math.floor(place / 2)];
    return `<path d="M${points}" class="line ${kind}"/><path d="M${left} ${down - 4}h24" class="line ${kind}"/>` +
      `<text x="${left + 30}" y="${down}" class="of">${name}</text>`;
  });
  return `<svg viewBox="0 0 560 ${160 + 18 * Math.ceil(rows.length / 2)}" role="img">${ticks.join("")}${lines.join("")}` +
    `<text x="${x(0.5)}" y="147">accuracy from the first step to the last, mean over seeds</text></svg>`;
}

function strips(rows) {
  const x = (value) => 100 + 440 * value;
  const bottom = 22 * rows.length + 6;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((tick) =>
    `<path d="M${x(tick)} 4V${bottom}" class="rule"/><text x="${x(tick)}" y="${bottom + 14}">${tick}</text>`);
  const lines = rows.map(([name, values], place) => {
    const y = 18 + 22 * place;
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    const dots = values.map((value) => `<circle cx="${x(value)}" cy="${y}" r="4"/>`).join("");
    return `<text x="92" y="${y + 4}" class="name">${name}</text>${dots}<path d="M${x(mean)} ${y - 9}v18" class="mean"/>`;
  });
  return `<svg viewBox="0 0 560 ${bottom + 34}" role="img">${ticks.join("")}${lines.join("")}` +
    `<text x="${x(0.5)}" y="${bottom + 30}">final accuracy: a dot per seed, a line at the mean</text></svg>`;
}
