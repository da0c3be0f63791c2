"""Learners from preferences on random worlds, each tuned: the comparisons that sources claim."""

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np

from analysis.lab import (
    Experiment,
    Floats,
    Frame,
    Grid,
    Part,
    Plot,
    Rows,
    Seeds,
    Settings,
    asks,
    columns,
    of_seeds,
)
from analysis.worlds.pilots import Arm
from analysis.worlds.preference_learners import SEEN, STEPS, Learner, demonstrations, experts, gap, votes

NAME = "preference-sets"
EACH, TUNED_ON, TUNED_MORE = 24, 32, 96
"""Random worlds of a unit; worlds for tuning; for tuning on labels, and of cloning, whose regret is uneven in
its strength."""
LESS = 1.05
"""Ratio of regrets that counts as less. Set before the table was made, as the grids were."""
SPREADS = (0.4, 2.5)
"""Factors of rewards, by prompt: voters disagree where rewards are close."""
RULES = (("DPO", "dpo", "hard"), ("IPO", "ipo", "hard"), ("VDPO", "dpo", "mmse"), ("VIPO", "ipo", "mmse"))
NATS = (2, 6)
BOTH_NATS = tuple(f"experts, {nats} nats" for nats in NATS)
UNITS = {"mixed votes": 96, "demonstrations": 192, "experts": 320, "good labels": 400}
"""Units of a run by prefix of the data's name; those of demonstrations are single worlds."""
KNOBS = {"rate": "rate", "beta": "beta", "third": "sft"}
"""Columns of the table, and the settings in them."""
NATURAL = {"beta": 0.0}
"""Ends of a grid that switch a setting off, so no wider grid exists."""


def regrets(learner: Learner) -> Callable[[int, Settings], Floats]:
    """Return a function of the learner's regret on all prompts and on those outside the data, [2, R]."""

    def score(seed: int, settings: Settings) -> Floats:
        found, theta_RF = learner(seed, settings)
        log_pi_RSA = found.policy(theta_RF)
        return np.stack([found.regret(log_pi_RSA), found.regret(log_pi_RSA, slice(SEEN, None))])

    return score


def powers(least: int, most: int) -> tuple[float, ...]:
    """Return the powers of 2 from 2**least on, below 2**most."""
    return tuple(2.0**k for k in range(least, most))


def arms() -> dict[tuple[str, str], Arm]:
    """Return every learner by its data and name."""
    found: dict[tuple[str, str], Arm] = {}
    for name, kind, rule in RULES:
        grid = {"rate": powers(-10, 2 if kind == "dpo" else -2), "beta": powers(-10, 1)}
        found["mixed votes", name] = Arm(regrets(votes(kind, rule, SPREADS)), grid)
    # Where the expert is near the reference cloning is best weak, and where it is far, strong.
    cloned: dict[int, Grid] = {
        2: {"sft": powers(-6, 8), "rate": powers(-6, 2), "beta": powers(-7, 5)},
        6: {"sft": powers(4, 12), "rate": powers(-6, 1), "beta": powers(-10, -2)},
    }
    for nats in NATS:
        grid = {"rate": powers(-7, 4), "beta": powers(-10, 1)}
        found[f"experts, {nats} nats", "DPO"] = Arm(regrets(experts("DPO", nats)), grid)
        found[f"experts, {nats} nats", "aligned"] = Arm(regrets(experts("aligned", nats)), cloned[nats])
        grid = {"sft": powers(-6, 15)}
        found[f"experts, {nats} nats", "cloned"] = Arm(regrets(experts("cloned", nats)), grid)
    for name in ("4 logged losers", "own losers"):
        grid = {"rate": powers(-6, 5), "beta": powers(-8, 1)}
        found["demonstrations", name] = Arm(regrets(demonstrations(name)), grid)
    grid = {"rate": powers(-10, 2), "beta": powers(-10, 1)}
    found["good labels", "DPO"] = Arm(regrets(gap("DPO")), grid)
    grid = {"rate": powers(-5, 6), "beta": (0.0, *powers(-8, 1))}
    found["good labels", "PPO"] = Arm(regrets(gap("PPO")), grid)
    return found


@cache
def tuned(data: str, learner: str) -> tuple[dict[str, float], list[str]]:
    """Return the settings with the least regret on other worlds."""
    more = data.endswith("labels") or learner == "cloned"
    return arms()[data, learner].tuned(TUNED_MORE if more else TUNED_ON, NATURAL)


def over_worlds(arm: Arm, unit: int, setting: Mapping[str, float], *, geometric: bool) -> Floats:
    """Return means of regrets over the worlds of a unit, which no other unit has."""
    met = (unit, *((unit + 1000) * EACH + i for i in range(1, EACH)))
    regret_WK = np.array([arm.at(world, setting) for world in met])
    # An expert 6 nats away can be copied without any regret, whose logarithm has no mean.
    return np.asarray(np.exp(np.log(regret_WK).mean(0)) if geometric else regret_WK.mean(0))


def rows(seeds: Seeds) -> Rows:
    """Return regrets on all prompts, and on unseen ones where asked; third: strength of SFT, or 0."""
    for (data, learner), arm in arms().items():
        best, ends = tuned(data, learner)
        met = seeds[: next(count for name, count in UNITS.items() if data.startswith(name))]
        single = data == "demonstrations"
        regret = arm.at if single else partial(over_worlds, arm, geometric=data not in BOTH_NATS)
        every, unseen = np.stack([regret(seed, setting=best) for seed in met]).T
        said = {name: best.get(knob, 0.0) for name, knob in KNOBS.items()}
        if not single:  # no claim needs it, and a table is at most a mebibyte
            unseen = np.full(len(met), np.nan)
        found = {"regret": every, "unseen": unseen, "at_end": " ".join(ends)}
        yield columns(met, data=data, learner=learner, **said, **found)


def by_learner(table: Frame) -> Frame:
    """Return the table with a column of data and learner, as rows of the figure are called."""
    return table.assign(who=table["data"] + ": " + table["learner"])


EXPERIMENT = Experiment(
    question="Which ways of learning from preferences leave less regret than their rivals, each at its best?",
    source="Cho et al. (2024), VPO; Yang et al. (2025), OPA-DPO; Diffusion-DRO (2025); "
    "Ivison et al. (2024), Unpacking DPO and PPO",
    differs="log-linear policies, 16 prompts of 6 answers; the outcome is regret in true reward for all; "
    "only the abstracts of VPO and Diffusion-DRO are known",
    compute=of_seeds(NAME, rows, max(UNITS.values()), {"tuned on": TUNED_ON, "steps": STEPS}),
    keys=("run", "seed", "data", "learner"), metrics=("regret", "unseen", "rate", "beta", "third", "at_end"),
    margins={"factor of regret": LESS},
    figure=Plot(
        "strips", x="regret: true regret", y="who: data and learner", of=by_learner,
        says="Shows true regret by data and learner, for log-linear policies on 16 prompts of 6 answers; "
        "votes: DPO and IPO learn majorities, VDPO and VIPO soft labels; experts are some nats from the "
        "reference: DPO learns pairs, cloned copies winners, aligned does so before DPO; losers of "
        "demonstrations are logged or the policy's own; with labels PPO follows a reward model; dots are "
        "worlds, or means over 24.",
    ),
    systems={
        "VPO → VDPO / VIPO (votes)": Part(claims=("v?po-has-less-regret-than-*",)),
        "OPA-DPO": Part(
            "no network; winners are given, not revised answers", ("align*", "dpo-after-cloning-*")
        ),
        "Diffusion-DRO": Part(
            "DPO's loss, no denoising; own losers come to cloning, within 1 % of its regret",
            ("own-losers-*",),
        ),
        "Unpacking DPO and PPO": Part(claims=("ppo-has-*",)),
    },
)  # fmt: skip


asks(EXPERIMENT,
    ("vdpo-has-less-regret-than-dpo", "With 1 to 32 votes a pair, soft labels leave DPO less regret than "
     "majorities, by a factor of 1.05.", {"learner": "DPO"}, {"learner": "VDPO"},
     {"over": {"data": "mixed votes"}}),
    ("vipo-has-less-regret-than-ipo", "With 1 to 32 votes a pair, soft labels leave IPO less regret than "
     "majorities, by a factor of 1.05.", {"learner": "IPO"}, {"learner": "VIPO"},
     {"over": {"data": "mixed votes"}}),
    ("alignment-lowers-the-regret-of-dpo", "With winners 2 and 6 nats from the reference, given and not "
     "revised from own answers, DPO has less regret if it first cloned them, by a factor of 1.05.",
     {"learner": "DPO"}, {"learner": "aligned"}, {"over": {"data": BOTH_NATS}}),
    ("dpo-after-cloning-lowers-the-regret-of-cloning", "With winners 2 and 6 nats from the reference, DPO "
     "after cloning them leaves less regret than cloning alone, by a factor of 1.05.",
     {"learner": "cloned"}, {"learner": "aligned"}, {"over": {"data": BOTH_NATS}}),
    ("own-losers-beat-logged-ones-unseen", "With DPO's loss of pairs, on unseen prompts the policy's own "
     "samples as losers leave less regret than 4 logged ones of 6 answers a prompt, by a factor of 1.05.",
     {"learner": "4 logged losers"}, {"learner": "own losers"},
     {"over": {"data": "demonstrations"}, "outcome": "unseen"}),
    ("ppo-has-less-regret-than-dpo", "From the same prompts and well labeled pairs PPO, with a reward model "
     "that sees more than the policy, has less regret than DPO, by a factor of 1.05.", {"learner": "DPO"},
     {"learner": "PPO"}, {"over": {"data": "good labels"}}),
    outcome="regret", times=LESS,
)  # fmt: skip
