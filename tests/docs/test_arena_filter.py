"""The arena page's script, run on a few blocks: which it hides, by task, lag and recipe."""

import json
import shutil
import subprocess

import pytest
from support.import_graph import ROOT

NODE = shutil.which("node")
# As much of a browser as the script asks for; blocks are (task, lag, recipes in the table's rows).
BROWSER = """
const [script, given, wanted] = process.argv.slice(1);
class Element {
  constructor() {
    Object.assign(this, { children: [], dataset: {}, hidden: false, heard: {}, rows: [], value: "" });
  }
  append(...parts) { this.children.push(...parts); }
  before(element) { globalThis.bar = element; }
  addEventListener(name, call) { this.heard[name] = call; }
  querySelectorAll() { return this.rows; }
}
const blocks = JSON.parse(given).map(([task, lag, recipes]) => {
  const rows = recipes.map((name) => ({ hidden: false, cells: [{ textContent: name }] }));
  return Object.assign(new Element(), { dataset: task ? { task, lag } : { lag }, rows });
});
globalThis.Option = class { constructor(text, value) { this.value = value; } };
globalThis.document = {
  addEventListener: (_, call) => { globalThis.ready = call; },
  querySelectorAll: () => blocks,
  createElement: () => new Element(),
};
eval(require("fs").readFileSync(script, "utf8"));
ready();
const fields = bar.children.map((label) => label.children[1]);
JSON.parse(wanted).forEach((value, place) => { fields[place].value = value; });
bar.heard.input();
const options = fields.slice(0, 2).map((field) => field.children.map((option) => option.value));
const names = (block) => block.rows.filter((row) => !row.hidden).map((row) => row.cells[0].textContent);
const shown = blocks.map((block) => (block.hidden ? null : names(block)));
console.log(JSON.stringify({ options, shown }));
"""
BLOCKS = [
    ["", "64", []],
    ["sorted", "64", ["grpo", "vcpo"]],
    ["sums", "64", ["grpo"]],
    ["sorted", "0", ["grpo"]],
]


@pytest.mark.skipif(NODE is None, reason="no node is installed: the script is not run")
@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (["", "", ""], [[], ["grpo", "vcpo"], ["grpo"], ["grpo"]]),
        (["sorted", "", ""], [[], ["grpo", "vcpo"], None, ["grpo"]]),
        (["", "64", "VC, none"], [[], ["vcpo"], [], None]),
        (["sums", "0", ""], [None, None, None, None]),
    ],
)
def test_blocks_and_rows_are_shown_that_were_asked_for(wanted: list[str], shown: list[object]) -> None:
    command = [str(NODE), "-e", BROWSER, str(ROOT / "docs" / "assets" / "arena.js")]
    done = subprocess.run(
        [*command, json.dumps(BLOCKS), json.dumps(wanted)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == {"options": [["", "sorted", "sums"], ["", "64", "0"]], "shown": shown}
