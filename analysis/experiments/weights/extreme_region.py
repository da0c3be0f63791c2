"""Many updates on one fixed batch, then distillation of the result under a trust region (ERPD)."""

from functools import cache

import numpy as np

from analysis.lab import PILOT, Experiment, Floats, Groups, Rows, Seeds, ask, columns, of_seeds, strips
from testbed.offline.improvement import softmax
from testbed.rng import generator

NAME = "extreme-region"
SOURCE = "Chen et al. (2026), Extreme Region Policy Distillation, arXiv:2605.25582; its abstract read"
SEEDS, PILOTS, SAME, FAR = 192, 48, 0.01, 2.0
"""Reward that counts as equal, and ratio of KL that counts as far smaller. Set before the table was made."""
INPUTS, FEATURES, ACTIONS, BATCH, TESTED, STEPS = 6, 64, 6, 96, 500, 256
"""Numbers in a context; random features; actions; samples of the one batch; contexts for scoring; updates."""
STEP, MANY = 1.0, (64, 128, 256)
GRIDS: dict[str, list[dict[str, float]]] = {
    "stopped": [{"steps": steps} for steps in (2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128)],
    "penalized": [{"beta": beta} for beta in (0.0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.11, 0.16, 0.23, 0.32)],
    "distilled": [
        {"steps": steps, "radius": radius}
        for steps in MANY
        for radius in (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)
    ],
}
"""Arms: updates stopped early; updates with a KL to the base in the loss; and many updates, then the nearest
policy to their end within a KL of the base. Many are at least 64: fewer are a rival's, and that end of the
grid is none."""


def drawn(seed: int) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return features and chances of reward of the batch and of the test, and the base's weights [F, A]."""
    rng = generator(seed, f"{NAME}/many")
    mix_IF, right_FA = rng.normal(size=(INPUTS, FEATURES)), rng.normal(size=(FEATURES, ACTIONS))
    hidden_IA = rng.normal(size=(INPUTS, ACTIONS))
    found = []
    for count in (BATCH, TESTED):
        context_NI = rng.normal(size=(count, INPUTS))
        seen_NF = np.tanh(context_NI @ mix_IF / np.sqrt(INPUTS))
        signal_NA = seen_NF @ right_FA / np.sqrt(FEATURES) + context_NI @ hidden_IA / np.sqrt(INPUTS)
        found += [seen_NF, 1 / (1 + np.exp(-2 * signal_NA + 1))]
    base_FA = 0.5 * right_FA / np.sqrt(FEATURES) + rng.normal(size=right_FA.shape) / np.sqrt(FEATURES)
    return (*found, base_FA)


def divergence(pi_xA: Floats, base_xA: Floats) -> Floats:
    """Return KL(pi, base) in nats, mean over contexts."""
    return np.asarray((pi_xA * np.log((pi_xA + 1e-300) / base_xA)).sum(-1).mean(-1))


def learn(seeds: Seeds, steps: float = STEPS, beta: float = 0.0, radius: float = 0.0) -> Groups:
    """Return the reward in new contexts and the log of the KL to the base there, [R] each.

    An update is a step along the gradient of mean A pi/mu on the batch, minus beta times the KL's gradient; A
    is the reward minus its mean, drawn once. Policies are softmax of linear scores. Distillation within a
    radius leads to a geometric mixture of base and far policy, and so mixes their weights.
    """
    worlds = [np.stack(each) for each in zip(*(drawn(int(seed)) for seed in seeds), strict=True)]
    seen_RNF, chance_RNA, new_RMF, reward_RMA, base_RFA = worlds
    mu_RNA, rng = softmax(seen_RNF @ base_RFA), generator(int(seeds[0]), f"{NAME} batch")
    below_RNA = mu_RNA.cumsum(-1)
    action_RN = (rng.random((*below_RNA.shape[:2], 1)) > below_RNA).sum(-1).clip(max=ACTIONS - 1)
    taken_RNA = np.eye(ACTIONS)[action_RN]
    reward_RN = rng.random(action_RN.shape) < (taken_RNA * chance_RNA).sum(-1)
    adv_RN = reward_RN - reward_RN.mean(-1, keepdims=True)
    weight_RNA = taken_RNA * adv_RN[..., None] / mu_RNA / BATCH
    weights_RFA = base_RFA
    for _ in range(int(steps)):
        pi_RNA = softmax(seen_RNF @ weights_RFA)
        score_RNA = weight_RNA - beta * np.log((pi_RNA + 1e-300) / mu_RNA) / BATCH
        pull_RNA = pi_RNA * (score_RNA - (pi_RNA * score_RNA).sum(-1, keepdims=True))
        weights_RFA = weights_RFA + STEP * np.swapaxes(seen_RNF, 1, 2) @ pull_RNA
    share_R = np.ones(len(seeds))
    if radius:
        low_R, high_R = np.zeros(len(seeds)), np.ones(len(seeds))
        for _ in range(20):  # the largest share within the radius on the batch's contexts
            share_R = (low_R + high_R) / 2
            mixed_RFA = base_RFA + share_R[:, None, None] * (weights_RFA - base_RFA)
            inside_R = divergence(softmax(seen_RNF @ mixed_RFA), mu_RNA) <= radius
            low_R, high_R = np.where(inside_R, share_R, low_R), np.where(inside_R, high_R, share_R)
    weights_RFA = base_RFA + share_R[:, None, None] * (weights_RFA - base_RFA)
    pi_RMA, old_RMA = softmax(new_RMF @ weights_RFA), softmax(new_RMF @ base_RFA)
    return {
        "reward": (pi_RMA * reward_RMA).sum(-1).mean(-1),
        "log kl": np.log(divergence(pi_RMA, old_RMA)),
        "base": (old_RMA * reward_RMA).sum(-1).mean(-1),
    }


@cache
def settings() -> dict[str, dict[str, float]]:
    """Return the setting of least KL of each arm that comes within SAME of the best reward on pilots."""
    pilots = tuple(range(PILOT, PILOT + PILOTS))
    found = {
        arm: [{name: float(x.mean()) for name, x in learn(pilots, **knobs).items()} for knobs in grid]
        for arm, grid in GRIDS.items()
    }
    bar = max(each["reward"] for tried in found.values() for each in tried) - SAME
    near = {
        arm: [(each["log kl"], n) for n, each in enumerate(tried) if each["reward"] >= bar]
        for arm, tried in found.items()
    }
    return {arm: GRIDS[arm][min(each)[1]] for arm, each in near.items() if each}


def ends(arm: str) -> bool:
    """Return whether a knob of an arm's setting is the least or the largest of its grid."""
    grid = {name: sorted({each[name] for each in GRIDS[arm]}) for name in GRIDS[arm][0]}
    least = {"steps": MANY[0]} if arm == "distilled" else {}
    return any(
        value in (grid[name][0], grid[name][-1]) and value != least.get(name)
        for name, value in settings()[arm].items()
    )


def rows(seeds: Seeds) -> Rows:
    """Return a row per arm and world, each arm at its setting; teacher: the end of the distilled updates."""
    chosen = settings()
    for arm, knobs in (chosen | {"teacher": {"steps": chosen["distilled"]["steps"]}}).items():
        knob = knobs.get("beta", knobs.get("radius", 0.0))
        given = {
            "arm": arm,
            "steps": knobs.get("steps", STEPS),
            "knob": knob,
            "at end": int(arm != "teacher" and ends(arm)),
        }
        yield columns(seeds, **given, **learn(seeds, **knobs))


EXPERIMENT = Experiment(
    question="Do many updates and a distillation within a trust region score as well at a far smaller KL?",
    source=SOURCE,
    differs="contextual bandits with linear scores, where distillation leads to a mixture of weights",
    compute=of_seeds(NAME, rows, SEEDS, {"batch": BATCH, "pilots": PILOTS}),
    keys=("run", "seed", "arm"),
    metrics=("steps", "knob", "at end", "reward", "log kl", "base"),
    margins={"reward that counts as equal": SAME, "factor of KL": FAR},
    figure=strips(
        "log kl: log of the KL to the base, nats",
        "Shows how far a policy moves from its base "
        "(log of the KL, on new contexts) in contextual bandits, each arm at its least KL with a pilot "
        "reward within 0.01 of the best; stopped makes a few updates on one batch; penalized has a KL to the "
        "base in its loss; distilled makes many updates and then goes from the base toward their end "
        "(teacher) as far as a KL allows.",
    ),
    systems={
        "ERPD (Extreme Region Policy Distillation)": "far smaller is this project's factor of 2; "
        "distillation mixes weights; more updates cost no reward, so that little drift is there to "
        "remove"
    },
)
for _name, _says, _rival in (
    ("distilled-updates-stay-far-nearer", "At a reward within 0.01 of the best, at least 64 updates on one "
     "batch, mixed back toward the base, have less than half the KL of updates with a KL in the loss.",
     "penalized"),
    ("distilled-updates-stay-far-nearer-than-stopped-ones", "At a reward within 0.01 of the best, at least "
     "64 updates on one batch, mixed back toward the base, have less than half the KL of updates stopped "
     "early.", "stopped"),
    ("distilled-updates-stay-far-nearer-than-their-teacher", "At a reward within 0.01 of the best, at least "
     "64 updates on one batch, mixed back toward the base, have less than half the KL of the policy at the "
     "end of the same updates.", "teacher"),
):  # fmt: skip
    ask(EXPERIMENT, _name, _says, _rival, "distilled", float(np.log(FAR)), "log kl")
