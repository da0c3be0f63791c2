"""Write docs/objectives.md from the registry: all objectives, and how to read the figures."""

from collections.abc import Sequence

from analysis.pages.markdown import text
from testbed.inspection.explain import brief, difference, settings
from testbed.objectives import objective
from testbed.registry import Entry

FAMILIES = {
    "reinforce": "Log-probabilities times a detached coefficient: REINFORCE and its importance weights.",
    "clipped": "PPO's clip and its descendants: a token's gradient vanishes once the ratio leaves a window.",
    "smooth": "Gates, kernels and power means in place of the hard clip.",
    "decoupled": "Three policies: what the engine sampled from (mu), the trainer's policy at the start of "
    "the update (anchor), the policy being optimized (pi).",
    "regression": (
        "Squared losses on log-ratios, and mirror descent. The weight is a residual: it shrinks as the "
        "policy approaches the target that the reward implies, and changes sign beyond it."
    ),
    "preference": "Losses on pairs or groups of answers.",
    "mixture": "Demonstrations, replayed answers and samples of the policy in one loss. Dash-dotted: the "
    "moved answer is a demonstration; dotted: it comes from an earlier step.",
    "terms": "Terms that are added to a loss: divergences to a reference, entropy, distillation. They may "
    "read no advantage; black curves hold for either sign.",
}
"""Contents of each folder of testbed/objectives, in the order of the page."""


def picture(family: str) -> str:
    """Return the file name of a family's picture."""
    return f"objectives-{family}.png"


def page() -> str:
    entries = [objective[name] for name in objective]
    found = {e.family for e in entries}
    families = [f for f in FAMILIES if f in found] + sorted(found - set(FAMILIES))
    variants = sum("@" in e.name for e in entries)
    head = text("atlas", objectives=len(entries) - variants, variants=variants)
    return "\n".join([head, *(_section(f, [e for e in entries if e.family == f]) for f in families)])


def _section(family: str, entries: Sequence[Entry]) -> str:
    bases = [entry for entry in entries if "@" not in entry.name]
    variants = [entry for entry in entries if "@" in entry.name]
    head = ("name", "formula", "defaults", "ratio", "reads", "on-policy", "bound", "source")
    rows = [head, ("---",) * len(head), *(_cells(entry) for entry in bases)]
    lines = [
        f"## {family.capitalize()}\n",
        f"{FAMILIES[family]}\n" if family in FAMILIES else "",
        f"![Effective weights of the family {family}, one panel per objective]({picture(family)})\n",
        *["| " + " | ".join(row) + " |" for row in rows],
    ]
    if variants:
        lines.append("\nVariants:\n")
        lines += [f"- `{e.name}` ({settings(e)}). {difference(e)} *{e.source}*" for e in variants]
    return "\n".join(lines) + "\n"


def _cells(entry: Entry) -> tuple[str, ...]:
    promised = entry.promises
    shown = [promised.get(key) for key in ("on_policy", "max_weight")]
    return (
        f"`{entry.name}`",
        _code(entry.formula),
        settings(entry),
        promised["ratio"],
        ", ".join(promised["reads"]) or "–",
        *("–" if value is None else _code(brief(value)) for value in shown),
        _cell(entry.source),
    )


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
