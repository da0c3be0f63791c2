// Filters of docs/arena.md: blocks by task and lag, rows by recipe. Without it everything is shown.
document.addEventListener("DOMContentLoaded", () => {
  const blocks = [...document.querySelectorAll("div.arena")];
  if (!blocks.length) return;
  const bar = document.createElement("form");
  bar.className = "arena-filter";
  const labelled = (text, field) => {
    const label = document.createElement("label");
    label.append(`${text} `, field);
    bar.append(label);
    return field;
  };
  const choice = (name) => {
    const select = document.createElement("select");
    const values = new Set(blocks.map((block) => block.dataset[name]).filter((value) => value));
    select.append(new Option("all", ""), ...[...values].map((value) => new Option(value, value)));
    return labelled(name, select);
  };
  const [task, lag] = [choice("task"), choice("lag")];
  const recipe = document.createElement("input");
  recipe.type = "search";
  recipe.placeholder = "grpo, vcpo";
  labelled("recipes", recipe);
  const filter = () => {
    const wanted = recipe.value.toLowerCase().split(/[\s,]+/).filter((word) => word);
    for (const block of blocks) {
      const otherTask = task.value && block.dataset.task && block.dataset.task !== task.value;
      block.hidden = Boolean(otherTask || (lag.value && block.dataset.lag !== lag.value));
      for (const row of block.querySelectorAll("tbody tr")) {
        const name = row.cells[0].textContent.trim().toLowerCase();
        row.hidden = wanted.length > 0 && !wanted.some((word) => name.includes(word));
      }
    }
  };
  bar.addEventListener("input", filter);
  bar.addEventListener("submit", (event) => event.preventDefault());
  blocks[0].before(bar);
});
