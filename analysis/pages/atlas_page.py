"""Write docs/objectives.md from the registry: all objectives, and how to read the figures."""

from collections.abc import Sequence

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

HEAD = """# The objective atlas

<!-- Written by `testbed evidence pages atlas` from the registry: do not edit. -->

An objective acts on a token by its derivative: the **effective weight** w = -dL/dlog π is the
coefficient of that token's score in the update. REINFORCE has w = A. Everything else lets w depend on how
far the policy has moved, and these figures draw how: {objectives} objectives and {variants} variants.

## How to read the figures

- **The probe.** A group of four answers of one token each, two with reward and advantage +1, two with -1.
  One of them has moved to log-ratio x (horizontal axis); the other three are on-policy. The vertical axis is
  w of the one that moved. μ = e⁻³ for every answer; anchor and reference equal μ.
- **Blue: A = +1, red: A = -1**, black where both coincide. A weight above 0 makes the token more likely. The
  dot is the on-policy point; where blue passes through 1 and red through -1, the objective starts out as
  REINFORCE.
- **Right of the dot** the policy has already made the token more likely. For A > 0 a weight that stays there
  keeps pushing; one that falls to 0 stops. For A < 0 the left side asks the same: how long does a loss go on
  pushing down what has become unlikely?
- **Solid** curves move the policy: x = log π/μ (log π/anchor or log π/ref where only that is read).
  **Long-dashed** curves keep the policy at the anchor and let the engines disagree: x = log anchor/μ.
  **Short-dashed** curves keep all three together and leave the reference behind: x = log μ/ref.
- **Gray behind a variant** (`name@source`) is its base. A variant that covers its base exactly differs in
  something that one token cannot show: the level of the ratio, a denominator, a statistic of more tokens.
- Vertical ranges are chosen per panel and end at ±3, or a little beyond the on-policy points;
  an arrow says how far a curve goes that leaves its panel.
- With one token per answer all ratio **levels** coincide. Which one an objective uses is in the tables, and
  decides how fast x grows: a sequence's log-ratio is the sum of its tokens'.
- An objective with a statistic of the batch sees the three on-policy answers as the rest of the batch.

The numbers are in `paper_figs/data/objective-weights.csv`; `testbed objectives compare NAME` tabulates an
objective with its variants, `testbed show NAME` prints all there is to say about one.

Columns: *on-policy* and *bound* are w/A at π = μ = anchor and the largest |w/A|, as promised to the contract
tests (– where nothing is promised; 1/T: spread over the T tokens of a sequence).
"""


def picture(family: str) -> str:
    """Return the file name of a family's picture."""
    return f"objectives-{family}.png"


def page() -> str:
    """Return the whole page as Markdown."""
    entries = [objective[name] for name in objective]
    found = {e.family for e in entries}
    families = [f for f in FAMILIES if f in found] + sorted(found - set(FAMILIES))
    variants = sum("@" in e.name for e in entries)
    head = HEAD.format(objectives=len(entries) - variants, variants=variants)
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
