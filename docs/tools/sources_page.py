"""Write docs/sources.md: every token task and source of data with base success and cost, as measured.

    python docs/tools/sources_page.py            # from paper_figs/data/source-costs.csv

The numbers are those of `testbed evidence run source-costs --write`.
"""

from __future__ import annotations

import csv
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE, PAGE = ROOT / "paper_figs/data/source-costs.csv", ROOT / "docs/sources.md"

HEAD = """# Tasks and sources: base success and cost

Written by `python docs/tools/sources_page.py` from the table of [source-costs](verdicts.md);
do not edit. `testbed evidence run source-costs --write` measures it anew.

Every source is a setting of `Run`, so any recipe meets any of them in one grid. `testbed list prefixes` (or
`guides`, `teachers`, `critics`, `verifiers`, `tasks`) prints their arguments.

```
testbed run staleness verifier=comparisons verifier_args.members=5 verifier_args.combine=worst lag=0 seed=0
testbed run staleness task=styled-sum guide=splice lag=0 seed=0 --extend
testbed run staleness task=graded-sum prefix=teacher prefix_args.tokens=5 lag=0 seed=0 --extend
```

The base model is a transformer of width 16, one layer and two heads, after 300 steps on solutions with an
error in every fifth token (`warm_start_steps=300 teacher_noise=0.2`), mean of two seeds. Success: of fresh
samples on held-out prompts, by the task itself. Cost: CPU milliseconds per cell and step on one core, 8
prompts with 8 responses each, the least of seven steps; other machines give other digits, the ratios stay
about the same.

"""
TAIL = """
Verifiers reward in place of the task; `accuracy` stays the task's own, `reward/gold` and `val/proxy` stand
beside it. Prefixes that are stored ask the base model first: all its answers count in `rollouts`. How
prefixes work: [prefixes and retries](prefixes.md).
"""


def rows() -> list[dict[str, str]]:
    """Return the rows of the table."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def page() -> str:
    """Return the page as Markdown."""
    found = rows()
    plain = next(float(r["ms"]) for r in found if (r["kind"], r["name"]) == ("prefix", "off"))
    lines = [HEAD, "## Tasks\n\n", "| task | base success | ms per step |\n|---|---|---|\n"]
    lines += [
        f"| `{r['name']}` | {float(r['success']):.3f} | {float(r['ms']):.1f} |\n"
        for r in found
        if r["kind"] == "task"
    ]
    lines += ["\n## Sources, on running-sum of six digits\n\n"]
    lines += [
        "| setting | source | reward of the first batch | ms per step | times plain |\n" + "|---" * 5 + "|\n"
    ]
    lines += [
        f"| `{r['kind']}` | {r['name']} | {float(r['reward']):.3f} | {float(r['ms']):.1f} | "
        f"{float(r['ms']) / plain:.2f} |\n"
        for r in found
        if r["kind"] != "task"
    ]
    return "".join([*lines, TAIL])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
