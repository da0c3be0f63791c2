"""Steps on fresh batches that ReMix saves against GRPO, at the arena's settings, read every 5 steps."""

from dataclasses import replace

from analysis.arena import table
from analysis.arena.chosen_settings import cells_of
from analysis.lab import Experiment, Frame, Seeds, inside, of_seeds, strips
from analysis.worlds.edited_training import Arm, sweep

SEEDS, FIRST, EVERY, TIMES = 32, 60_000, 5, 3
"""Seeds of a run, offset so that no other table has them; steps between readings; and the factor between
numbers of steps. The arena asked for the same factor on readings 30 steps apart."""
ARMS, NEEDED = ("grpo", "remix_reuse"), "steps_to 0.62"
"""80 % of what GRPO ended at in the arena before its rates were refined."""


def rows(seeds: Seeds) -> Frame:
    """Return a row per arm and seed, at the rate and knob that the arena chose on fresh sorted digits."""
    frame = table.load()
    here = frame[(frame["task"] == "sorted") & (frame["lag"] == 0)].groupby("arm").first()
    runs = {name: cells_of(frame, "sorted", {name: (0,)}, (0,))[0] for name in ARMS}
    arms = {name: Arm(replace(run, log_every=EVERY)) for name, run in runs.items()}
    rates = {name: run.learning_rate for name, run in runs.items()}
    found = sweep(arms, (NEEDED, "accuracy"), rates, [seed + FIRST for seed in seeds])
    return found.assign(**{"at end": found["arm"].map(here["at_edge"])})


EXPERIMENT = Experiment(
    question="How many of GRPO's steps on fresh batches does ReMix save by up to 16 updates on each?",
    source="ReMix, arXiv:2507.06892: 30 to 450 times fewer rollouts",
    differs="a transformer of 7,000 weights that sorts ten digits; at most 16 updates on a batch; GRPO needs "
    "100 to 200 steps, so a factor of 30 could hardly be measured",
    compute=of_seeds("rollouts-saved", rows, SEEDS), keys=("run", "arm", "seed"),
    metrics=("rate", "at end", NEEDED, "accuracy"), margins={"times as many steps": TIMES},
    figure=strips(NEEDED, "Shows steps of 32 responses until toy transformers sort ten digits with an "
        "accuracy of 0.62 on fresh data, each arm at its best rate and knob in the arena: GRPO, and ReMix "
        "with 16 updates on a batch and replay of older batches.", x_label="steps to accuracy 0.62"),
    systems={"ReMix (Squeeze the Soaked Sponge)": "rollouts saved on fresh data by at most 16 updates on a "
             "batch; the factor of 3 asked here is a tenth of the smallest in the source; neither the length "
             "of responses nor a new base"},
)  # fmt: skip

EXPERIMENT.claim(
    "remix-needs-a-third-of-the-rollouts-of-grpo",
    "On fresh data GRPO needs over three times as many steps as ReMix to an accuracy of 0.62 on sorted, read "
    "every 5 steps; ReMix's updates on a batch are tuned.",
    gates={"tuned": inside(arm=ARMS)},
).compare(NEEDED, {"arm": "grpo"}, {"arm": "remix_reuse"}, times=TIMES)
