"""Wider clips of REC, group-relative REINFORCE, and RED; `tuned-rec` asks of its clip and its weights."""

from dataclasses import replace

from analysis.lab import Experiment, Plot, Stop, Tuned
from analysis.sweeps.base_runs import LITE
from analysis.tables.cell_table import arms_of
from testbed.config.run import Run

SOURCE = "Yao et al. (2025), Group-relative REINFORCE is secretly an off-policy algorithm, arXiv:2509.24203"
MARGIN = 0.05
LAGS = (16, 64)
CLIPS = {
    "REC, 0.2": Run(recipe="rec"),
    "REC, 0.6 and 2": Run(recipe="rec", recipe_args=(("eps_high", 2), ("eps_low", 0.6))),
    "REC, 2": Run(recipe="rec", recipe_args=(("eps_high", 2), ("eps_low", 2))),
    "RED-drop": Run(recipe="red", recipe_args=(("how", "drop"),)),
    "RED-weight": Run(recipe="red"),
    "GRPO": Run(recipe="grpo"),
}
"""REC by its bounds below and above 1; a lower bound of 2 clips nothing."""
NARROW, WIDE, *_ = arms_of(CLIPS, CLIPS.values(), ("recipe", "recipe_args")).values()


def cells() -> tuple[Run, ...]:
    """REC at three widths, RED and GRPO at two lags, each at its best learning rate."""
    return tuple(
        replace(LITE, lag=lag, recipe=arm.recipe, recipe_args=arm.recipe_args)
        for lag in LAGS
        for arm in CLIPS.values()
    )


EXPERIMENT = Experiment(
    question="Is a clip range far wider than 0.2 as stable on old data, and faster?",
    source="Yao et al. (2025), arXiv:2509.24203",
    differs="a transformer of 7,000 weights, sums of 6 digits, 300 steps of 32 responses; each arm at its "
    "own rate",
    cells=cells,
    tuned=Tuned(),
    stop=Stop(block=16, cap=32),
    keys=("recipe", "recipe_args", "lag", "seed"),
    metrics=(
        *("accuracy", "best", "start", "area", "collapsed", "mean actor/clip_share"),
        "mean actor/learning_rate",
    ),
    margins={"accuracy below a rival that counts as no worse": MARGIN},
    figure=Plot(
        "distribution",
        x="lag",
        y="area",
        arm=("recipe", "recipe_args: clip range"),
        names={"eps_high=2,eps_low=0.6": "0.6, 2", "eps_high=2,eps_low=2": "2, 2", "how=drop": "drop"},
        x_label="lag (optimizer steps)",
        y_label="mean accuracy along the run",
        says="Shows mean accuracy along a run of a transformer of 7,000 weights on sums of six digits, at "
        "two ages of data, each arm at its best rate; REC is REINFORCE with a group baseline that drops "
        "tokens whose ratio leaves the clip range, given by its bounds below and above 1 (default: 0.2 and "
        "0.2); RED has no ratios: it weights samples by exp(advantage) (default) or drops surplus failures; "
        "GRPO clips at 0.2.",
    ),
    systems=("REC (Group-relative REINFORCE is off-policy)",),
)

_WIDE = "REC with bounds of 0.6 below and 2 above has a higher mean accuracy along the run than with 0.2"
_ENDS = "ends at most 0.05 below REC with 0.2"
for _name, _says, _outcome, _arm, _rival, _by in (
    ("a-wide-rec-clip-learns-faster-at-lag-16", _WIDE, "area", WIDE, NARROW, 0.0),
    ("a-wide-rec-clip-learns-faster-at-lag-64", _WIDE, "area", WIDE, NARROW, 0.0),
    ("a-wide-rec-clip-ends-no-lower-at-lag-16", f"REC, 0.6 and 2 {_ENDS}", "accuracy", WIDE, NARROW, -MARGIN),
    ("a-wide-rec-clip-ends-no-lower-at-lag-64", f"REC, 0.6 and 2 {_ENDS}", "accuracy", WIDE, NARROW, -MARGIN),
):
    _lag = int(_name[-2:])
    EXPERIMENT.claim(_name, f"At lag {_lag}, {_says}, on most seeds.").compare(
        _outcome, _arm, _rival, by=_by, over={"lag": _lag}
    )
for _name in ("a-wide-rec-clip-does-not-collapse-at-lag-16", "a-wide-rec-clip-does-not-collapse-at-lag-64"):
    _lag = int(_name[-2:])
    EXPERIMENT.claim(
        _name, f"At lag {_lag}, REC with bounds of 0.6 and 2 collapses on less than half of all seeds."
    ).happens("collapsed", WIDE, over={"lag": _lag}, spared=True)
