"""Policy improvement from small batches: adaptive sampling, mirror steps, backups over tokens."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from analysis.lab import PILOT, Groups, Plot, Seeds, TunedArms, asks, generator, strips
from analysis.worlds.offline_worlds import Worlds, random_worlds
from analysis.worlds.sampled_improvement import Arm, Tokens, learn

NAME = "small-batches"
SEEDS, PILOTS, TRAININGS, ITERATIONS = 96, 48, 6, 40
"""Worlds of a run; pilot worlds; trainings in each."""
LATER = {"random": 20_000, "scarce": 720_000, "composed": 720_000, "unrelated": 720_000}
"""Offset of worlds past those of earlier tables. Scarce batches have 16 steps in place of 64."""
SAME = 0.02
"""Margin of scores, 1 being the optimum's lead over the uniform policy. Set before the table was made."""
TREE = Tokens.tree()

RATES = tuple(0.3125 * 2**i for i in range(14))
CLIPS = tuple(0.0125 * 2**i for i in range(12))
CLIP = {"rate": RATES[:12], "knob": CLIPS[:9]}
WIDE = {"rate": RATES, "knob": CLIPS}
"""Rates and clips of PPO."""
GRIDS: dict[str, Any] = {
    "ppo": CLIP,
    "ppo, buffer": {**CLIP, "kept": (2, 3, 4, 5, 6)},
    "props": {**CLIP, "kept": (2, 3, 4, 5, 6), "adapt": (1.25, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)},
    "ppo, plain advantages": WIDE,
    "mdpo": {"rate": tuple(0.125 * 2**i for i in range(10)), "knob": tuple(0.125 * 2**i for i in range(9))},
    "mdpo, no kl": {},
    "trust region": {"knob": CLIPS[:9], "falls": (False, True)},
    "few steps, no kl": {"rate": tuple(0.0625 * 2**i for i in range(10))},
    "action": WIDE,
    "decomposed": WIDE,
    "token": {**WIDE, "token_discount": (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.9875, 1.0)},
}
"""kept: batches in the buffer. A trust region may be constant or shrink as MDPO's steps do."""
MIRROR = Arm("mirror", scaled=False, passes=100)
KINDS = {
    "mdpo": MIRROR,
    "mdpo, no kl": MIRROR,
    "ppo, plain advantages": Arm(scaled=False),
    "trust region": Arm("trust region"),
    "few steps, no kl": replace(MIRROR, passes=10, knob=np.inf),
    **{name: Arm(critic=name) for name in ("action", "decomposed", "token")},
}
BASINS = {"rate": 5.0, "knob": 0.8}, {"rate": 20.0, "knob": 0.05}
"""Small steps that no clip binds, and large ones that it stops: on pilots both are better than what lies
between."""
MORE: dict[str, dict[str, float]] = {
    "ppo, buffer": {"kept": 3},
    "props": {"kept": 3, "adapt": 10.0},
    "token": {"token_discount": 0.9},
}
STARTS = {
    name: [{**each, **MORE.get(name, {})} for each in BASINS]
    for name, grid in GRIDS.items()
    if grid.get("rate") in (CLIP["rate"], RATES)
} | {"mdpo": [{"rate": 4.0, "knob": 1.0}, {"rate": 0.5, "knob": 2.0}]}
"""Where the search of larger grids begins."""


@cache
def made(seeds: Seeds, world: str) -> tuple[Worlds, dict[str, Any]]:
    """Return the worlds of a family, and what learning in them needs to know."""
    seeds = tuple(seed + LATER[world] for seed in seeds)
    if world in ("random", "scarce"):
        return random_worlds(seeds), {"batch": 64 if world == "random" else 16}
    return sentences(seeds, world == "composed"), {"batch": 128, "tokens": TREE}


def sentences(seeds: Seeds, composed: bool) -> Worlds:
    """Return random MDPs with 22 actions of 1 to 3 tokens; composed: rewards add up over the tokens."""
    plain = random_worlds(seeds, actions=len(TREE.reach_AN))
    if not composed:
        return plain
    found = []
    for seed, world in zip(seeds, plain.worlds, strict=True):
        each_SNV = generator(seed, f"{NAME} tokens").normal(size=(world.states, *TREE.after_NV.shape))
        reward_SA = (each_SNV[:, np.arange(len(TREE.after_NV)), TREE.token_AN] * TREE.reach_AN).sum(-1)
        found.append(replace(world, reward_SA=(reward_SA - reward_SA.mean()) / reward_SA.std()))
    return Worlds.of(tuple(found))


def trained(seeds: Seeds, arm: str, world: str = "random", **knobs: Any) -> Groups:
    """Return the mean score over 40 iterations and the final one, averaged over 6 trainings (pilots: 2)."""
    if arm == "mdpo, no kl":
        knobs = {**SCARCE.setting("mdpo", world)[0], "knob": np.inf}
    worlds, known = made(seeds, world)
    how = replace(KINDS.get(arm, Arm()), **knobs)
    first = seeds[0] + LATER[world]
    drawn = range(first, first + (2 if seeds[0] >= PILOT else TRAININGS))
    score_KR = np.mean([learn(worlds, how, seed=s, iterations=ITERATIONS, **known) for s in drawn], axis=0)
    return {"area": score_KR.mean(0), "final": score_KR[-1]}


def arms(pilots: int, *names: str, **cells: Any) -> TunedArms:
    endless = {"falls": (False, True), "kept": (2,), "token_discount": (1.0,)}
    return TunedArms({name: GRIDS[name] for name in names}, trained, "area", pilots, cells, endless, STARTS)


RANDOM = arms(PILOTS, *list(GRIDS)[:3])
ABOUT = {"iterations": ITERATIONS, "trainings": TRAININGS}
SCORES = ("area", "final")
_more: dict[str, Any] = {
    "differs": "tables with TD critics; steps are independent draws of the occupancy; 40 batches; every arm "
    "at its best settings",
    "budget": "40 iterations, for which settings were chosen",
}


def scored(batches: str, arms: str) -> Plot:
    says = f"Shows the score (0 the uniform policy, 1 the optimum) averaged over {batches}, each arm at its "
    return strips("area: mean score of 40 iterations", f"{says}best settings, {arms}")


EXPERIMENT = RANDOM.experiment(
    "small-batches", SEEDS, SCORES, ABOUT,
    question="From small batches, what does adaptive sampling add to PPO?",
    source="Corrado & Hanna (2023), PROPS, arXiv:2311.08290",
    margins={"score that counts as equal": SAME},
    figure=scored("40 small batches in random MDPs", "of PPO from the last batch, from a buffer, or from a "
                  "buffer drawn adaptively (props)."),
    systems={"PROPS": "learning speed in random MDPs; sampling error is not measured"},
    **_more,
)  # fmt: skip
asks(EXPERIMENT,
    ("props-learns-faster-than-a-plain-buffer", "In random MDPs PPO from batches drawn adaptively has a "
     "higher mean score over training than from batches drawn on policy, each at its best rate, clip and "
     "number of batches.", "props", "ppo, buffer"),
    ("props-learns-faster-than-ppo", "In random MDPs PPO from batches drawn adaptively has a mean score over "
     "training 0.02 above that of on-policy PPO, each at its best.", "props", "ppo", SAME),
    outcome="area",
)  # fmt: skip

SCARCE = arms(2 * PILOTS, *list(GRIDS)[3:8], world=("scarce",))
MDPO = SCARCE.experiment(
    "mirror-steps", SEEDS, SCORES, ABOUT,
    question="From batches of 16 steps, what does the KL term add to many gradient steps?",
    source="Tomar et al. (2020), MDPO, arXiv:2005.09814",
    margins={"score that counts as equal": SAME},
    figure=scored("40 batches of 16 steps in random MDPs", "of a hundred mirror steps with a KL or none "
                  "(mdpo), few gradient steps, an exact trust region, and PPO."),
    systems=("MDPO",),
    **_more,
)  # fmt: skip
OFF = {"off": {"arm": "mdpo, no kl"}}
asks(MDPO,
    ("mdpo-is-no-worse-than-a-trust-region", "From batches of 16 steps a hundred inner gradient steps with a "
     "KL term have a mean score at most 0.02 below an exact trust region of the best radius, constant or "
     "falling.", "mdpo", "trust region", -SAME, OFF),
    ("mdpo-is-no-worse-than-ppo", "From batches of 16 steps a hundred inner gradient steps with a KL term "
     "have a mean score at most 0.02 below that of PPO at its best clip and rate.",
     "mdpo", "ppo, plain advantages", -SAME, OFF),
    ("mdpo-needs-its-kl", "From batches of 16 steps a hundred inner steps with a KL term have a higher mean "
     "score than ten without one at their best rate.", "mdpo", "few steps, no kl",
     {"source": "this project: early stopping in place of the KL"}),
    outcome="area", over={"world": "scarce"},
)  # fmt: skip

WORDS = arms(2 * PILOTS, "action", "decomposed", "token", world=("composed", "unrelated"))
TOKENS = WORDS.experiment(
    "token-actions", SEEDS, SCORES, ABOUT,
    question="For actions of several tokens, what do backups over tokens lose that decomposed ones keep?",
    source="Wen et al. (2024), POAD, arXiv:2405.15821",
    margins={"score that counts as equal": SAME},
    figure=scored("40 small batches in random MDPs with actions of one to three tokens", "of PPO with "
                  "backups over actions, over tokens, or discounted only between actions (decomposed)."),
    systems=("POAD",),
    **_more,
)  # fmt: skip
_EACH = "each at its best rate and clip"
asks(TOKENS,
    ("decomposed-actions-beat-a-token-backup", "With actions of one to three tokens PPO has a mean score "
     f"0.02 higher by decomposed backups than by backups over tokens at their best discount, {_EACH}.",
     "decomposed", "token", SAME, {"over": dict(WORDS.cells)}),
    ("decomposed-actions-beat-an-action-backup", "With actions of one to three tokens, that add up to the "
     "reward, PPO has a higher mean score by decomposed backups than by backups over whole actions, "
     f"{_EACH}.", "decomposed", "action", {"over": {"world": "composed"}}),
    outcome="area",
)  # fmt: skip
