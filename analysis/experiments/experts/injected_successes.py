"""A success put into a group: what it does to advantages and to the expected update, enumerated."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, exact, short_of
from analysis.tables.committed import Table
from analysis.worlds.teaching_worlds import AllResponses, single_gradients
from envs.arrays import Floats
from testbed.advantages import advantage
from testbed.config.run import Run

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.rollout import Rollout

NAME = "injected-successes"
GROUP, ARMS = 4, 5
CHANCES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.6, 0.9)
GUIDES = ("none", "rescue", "insert")
LOUDER, ALONG, FALL = 10.0, 0.9, 0.1
"""Least ratio of update norms at a chance of 0.01, cosine with the policy gradient, and fall of the
share of skewed groups; the last was set after it was seen."""


def bandit(chance: float) -> Tensor:
    """Return logits of a bandit whose right arms, the expert's and the policy's own, have this chance."""
    import torch

    others_K = np.arange(1.0, ARMS - 1) / np.arange(1.0, ARMS - 1).sum()
    return torch.from_numpy(np.log(np.concatenate([[chance / 3, 2 * chance / 3], (1 - chance) * others_K])))


def groups(logits_K: Tensor, reward_K: Tensor) -> tuple[Rollout, Tensor]:
    """Return every group of GROUP own samples as a replica, and its probability [R]."""
    import torch

    from testbed.data.rollout import Rollout

    token_RB = torch.tensor(list(itertools.product(range(ARMS), repeat=GROUP)))
    logp_RB = logits_K.log_softmax(-1)[token_RB]
    rollout = Rollout(
        prompt_RNQ=torch.zeros(len(token_RB), 1, 1, dtype=torch.int64),
        token_RBT=token_RB[..., None],
        mask_RBT=torch.ones_like(token_RB[..., None], dtype=torch.bool),
        logp_mu_RBT=logp_RB[..., None],
        reward_RB=reward_K[token_RB],
        group=GROUP,
    )
    return rollout, logp_RB.sum(-1).exp()


def helped(rollout: Rollout, reward_K: Tensor, guide: str) -> Rollout:
    """Return the groups behind a guide of the project, whose teacher takes the first arm."""
    import torch

    from testbed.teachers.guides import guide_for

    made = guide_for(Run(guide=guide, group=GROUP))
    if made is None:
        return rollout
    first = replace(
        rollout,
        token_RBT=torch.zeros_like(rollout.token_RBT),
        reward_RB=torch.full_like(rollout.reward_RB, float(reward_K[0])),
    )
    return made.help(rollout, lambda: first, 0)[0]


def advantages(rollout: Rollout, recipe: str) -> Tensor:
    """Return the recipe's advantages, [R, B]."""
    from testbed.data.signals import Signals
    from testbed.recipes import recipe as recipes

    made = recipes[recipe].bind()()
    signals = Signals(rollout.reward_RB, rollout.groups(), rollout.mask_RBT)
    found: Tensor = advantage[made.advantage].bind(**dict(made.advantage_args))(signals)
    return found


def update(logits_K: Tensor, reward_K: Tensor, guide: str, recipe: str = "grpo") -> Tensor:
    """Return the expected update of the logits [K]: minus the recipe's gradient, over all groups."""
    import torch

    from testbed.data.batch import Batch
    from testbed.recipes import recipe as recipes

    rollout, weight_R = groups(logits_K, reward_K)
    rollout = helped(rollout, reward_K, guide)
    leaf_K = logits_K.clone().requires_grad_()
    logp_RBT = leaf_K.log_softmax(-1)[rollout.token_RBT]
    batch = Batch(
        logp_mu_BT=logp_RBT.detach(),  # an expert's ratio is 1, as the learner sets it
        adv_BT=advantages(rollout, recipe)[..., None],
        mask_BT=rollout.mask_RBT,
        reward_B=rollout.reward_RB,
        group_B=rollout.groups(),
        origin_B=rollout.origin_RB,
    )
    loss_R = recipes[recipe].bind()().loss(logp_RBT, batch, {})
    (found_K,) = torch.autograd.grad((weight_R * loss_R).sum(), leaf_K)
    return -found_K


def right_arms() -> Tensor:
    """Return rewards of 1 for the first two arms."""
    import torch

    return torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)


def table() -> Table:
    """Return norms of expected updates and their cosines with the policy gradient."""
    import torch

    rows = []
    for chance, guide in itertools.product(CHANCES, GUIDES):
        logits_K = bandit(chance)
        pi_K = logits_K.softmax(-1)
        true_K = pi_K * (right_arms() - pi_K[:2].sum())
        found_K = update(logits_K, right_arms(), guide)
        cosine = float(torch.nn.functional.cosine_similarity(found_K, true_K, dim=0))
        rows.append((chance, guide, float(found_K.norm()), cosine))
    return Table.of(NAME, pd.DataFrame(rows, columns=["chance", "guide", "norm", "cosine"]), {"group": GROUP})


EXPERIMENT = Experiment(
    NAME,
    question="What does a success put into a group do to GRPO's advantages and expected update?",
    source="TempSamp-R1 (2025), arXiv:2509.18056; RGR-GRPO (2025); DaGRPO (2025), arXiv:2512.06337",
    differs="a bandit of 5 arms and trees of 27 responses, groups of 4; all groups enumerated, one update",
    compute=table,
    keys=("chance", "guide"),
    metrics=("norm", "cosine"),
    margins={"ratio of norms": LOUDER, "cosine": ALONG, "fall of the share of skewed groups": FALL},
    figure=Plot(
        "final by setting", x="chance: chance of a success", y="norm: norm of the expected update",
        arm=("guide",), log="xy",
    ),
    systems={
        "TempSamp-R1": Part(
            "advantages of groups with one ground truth, plain and bent; one update of a bandit",
            claims=("bending-two-valued-rewards-changes-nothing", "bending-unskews-graded-groups"),
        ),
        "RGR-GRPO": Part(
            "the expected update with a guided success in failed groups; no rubrics, no training",
            claims=(
                "rescued-groups-speak-where-others-are-silent",
                "rescued-groups-keep-the-policy-gradients-direction",
            ),
        ),
        "DaGRPO": Part(
            claims=(
                "rescued-groups-speak-where-others-are-silent",
                "like-pairs-conflict-but-cancel-exactly",
                "masking-like-pairs-leaves-the-largest-gradient",
            )
        ),
    },
)  # fmt: skip


@EXPERIMENT.claim(kind="enumerated")
def rescued_groups_speak_where_others_are_silent(table: pd.DataFrame) -> Evidence:
    """At a success chance of at most 0.01, GRPO's expected update on a bandit is at least 10 times as long
    with an expert's success put into failed groups.
    """
    wide = table.pivot(index="chance", columns="guide", values="norm")
    ratio = (wide["rescue"] / wide["none"])[lambda x: x.index <= 0.01]
    return exact(1 - ratio / LOUDER, 0.0, f"lacking ratio; ratios {', '.join(f'{x:.0f}' for x in ratio)}")


@EXPERIMENT.claim(kind="enumerated")
def rescued_groups_keep_the_policy_gradients_direction(table: pd.DataFrame) -> Evidence:
    """At every chance of success the update with rescued groups has a cosine of at least 0.9 with the policy
    gradient, though the expert takes the right arm that the policy takes less often.
    """
    cosine = table[table["guide"] == "rescue"].set_index("chance")["cosine"]
    note = f"lacking cosine; {', '.join(f'{x:.2f} at {c:g}' for c, x in cosine.items())}"
    return exact(ALONG - cosine, 0.0, note)


@EXPERIMENT.claim()
def failed_groups_teach_nothing_until_a_success_is_put_in() -> Evidence:
    """In a group of G without a success all GRPO advantages are 0; with one put in it has (G - 1)/sqrt(G) and
    every own response -1/sqrt(G), so that all own responses are pushed down alike.

    Return distances from the closed forms, up to the 1e-6 under the standard deviation.
    """
    logits_K, reward_K = bandit(0.1), right_arms()
    rollout, _ = groups(logits_K, reward_K)
    bad_R = (rollout.reward_RB == 0).all(-1)
    plain_RB = advantages(rollout, "grpo")[bad_R]
    rescued_RB = advantages(helped(rollout, reward_K, "rescue"), "grpo")[bad_R]
    root = np.sqrt(GROUP)
    gaps = [plain_RB.abs().max(), (rescued_RB[:, -1] - (GROUP - 1) / root).abs().max()]
    gaps.append((rescued_RB[:, :-1] + 1 / root).abs().max())
    return exact([float(x) for x in gaps], 1e-5, "largest distance from a closed form")


@EXPERIMENT.claim(source="derived: standardizing forgets every rising map of two values")
def bending_two_valued_rewards_changes_nothing() -> Evidence:
    """With rewards 0 and 1, TempSamp-R1's bent rewards give GRPO's advantages and expected update with an
    expert in every group: what it repairs needs graded rewards.
    """
    gaps = []
    for chance in CHANCES:
        logits_K = bandit(chance)
        both = [update(logits_K, right_arms(), "insert", name) for name in ("grpo", "tempsamp")]
        gaps.append(float((both[0] - both[1]).abs().max()))
    return exact(gaps, 1e-5, "largest distance of expected updates, 1e-6 under every standard deviation")


@EXPERIMENT.claim(kind="enumerated")
def bending_unskews_graded_groups() -> Evidence:
    """With rewards 0, 0.1, 0.3 and 0.6 for own arms and 1 for the expert, bending lowers the chance of a
    group in which every own advantage is negative by at least 0.1, and leaves at least 0.1 of it.
    """
    import torch

    reward_K = torch.tensor([1.0, 0.6, 0.3, 0.1, 0.0], dtype=torch.float64)
    rollout, weight_R = groups(torch.tensor([1e-9, 1.0, 1.0, 1.0, 1.0]).log().double(), reward_K)
    inserted = helped(rollout, reward_K, "insert")
    skewed = {
        name: float(weight_R[(advantages(inserted, name)[:, :-1] < 0).all(-1)].sum())
        for name in ("grpo", "tempsamp")
    }
    note = f"skewed groups {skewed['grpo']:.3f} plain, {skewed['tempsamp']:.3f} bent"
    return exact([FALL - skewed["grpo"] + skewed["tempsamp"], FALL - skewed["tempsamp"]], 0.0, note)


@EXPERIMENT.claim(source="derived; DaGRPO's score of distinctiveness could not be verified")
def like_pairs_conflict_but_cancel_exactly() -> Evidence:
    """Of two responses with opposite advantages, the gradients' cosine falls with the number of first tokens
    they share; their sum is that of the differing tokens alone, so that masking the pair takes away no
    conflict from the update, only what tells the two apart.
    """
    import torch

    from testbed.objectives.reinforce.plain import reinforce

    world, gaps = AllResponses(3, 4), []
    cosines: dict[int, list[float]] = {shared: [] for shared in range(4)}
    for seed in range(4):
        pi = world.random(seed, 0.5)
        up, down = (
            single_gradients(
                reinforce, world, pi, world.batch(pi, pi, torch.full((81,), sign, dtype=torch.float64))
            )
            for sign in (1.0, -1.0)
        )
        for a, b in itertools.combinations(range(81), 2):
            same_T = (world.token_LT[a] == world.token_LT[b]).int().cumprod(0)
            shared = int(same_T.sum())
            total = up[a] + down[b]
            gaps.append(float(total[world.state_LT[a][:shared]].abs().max()) if shared else 0.0)
            gaps.append(1e-6 - float(total.norm()))
            cosines[shared].append(float((up[a] * down[b]).sum() / up[a].norm() / down[b].norm()))
    mean = [float(np.mean(cosines[shared])) for shared in range(4)]
    gaps += [later - earlier for earlier, later in itertools.pairwise(mean)]
    note = f"gradient left on shared tokens, or rise of the cosine: {', '.join(f'{x:.2f}' for x in mean)}"
    return exact(gaps, 1e-12, note)


def masked(seed: int) -> tuple[Floats, Floats]:
    """Return mean and largest norm of a group's gradient, mean cosine of its opposing pairs, and cosine of
    the expected update with the policy gradient, [4]: of whole groups of 4, and with like pairs masked.

    Like: the first two of four tokens are shared, advantages oppose. Groups of a peaked policy on a tree of
    16 responses, 6 of them right, are enumerated.
    """
    import torch

    from testbed.exact.group import multisets
    from testbed.exact.two_rewards import group_advantages
    from testbed.objectives.reinforce.plain import reinforce

    world = AllResponses(2, 4)
    pi = world.random(seed, 1.5)
    one_L = torch.ones(16, dtype=torch.float64)
    score_LX = single_gradients(reinforce, world, pi, world.batch(pi, pi, one_L)).flatten(1).numpy()
    law_L, token_LT = world.law(pi).numpy(), world.token_LT.numpy()
    reward_L = np.random.default_rng(seed).permutation(16) < 6.0
    index_RG, orders_R = multisets(16, GROUP)
    weight_R = orders_R * law_L[index_RG].prod(-1)
    adv_RG = group_advantages(reward_L[None].astype(np.float64)[:, index_RG], "joint")
    first, second = index_RG[:, :, None], index_RG[:, None, :]
    opposed_RGG = adv_RG[:, :, None] * adv_RG[:, None, :] < 0
    shared_LL = (token_LT[:, None] == token_LT).cumprod(-1).sum(-1)
    unlike_RG = ~((shared_LL[first, second] >= 2) & opposed_RGG).any(-1)
    unit_LX = score_LX / np.linalg.norm(score_LX, axis=-1, keepdims=True)
    cosine_RGG = -(unit_LX @ unit_LX.T)[first, second]
    true_X = (law_L * (reward_L - law_L @ reward_L)) @ score_LX

    def facts(kept_RG: Any) -> Floats:
        group_RX = ((adv_RG * kept_RG)[..., None] * score_LX[index_RG]).mean(1)
        norm_R, update_X = np.linalg.norm(group_RX, axis=-1), weight_R @ group_RX
        pair_RGG = weight_R[:, None, None] * (opposed_RGG & kept_RG[:, :, None] & kept_RG[:, None, :])
        along = abs(update_X @ true_X) / np.linalg.norm(update_X) / np.linalg.norm(true_X)
        return np.array(
            [weight_R @ norm_R, norm_R.max(), (pair_RGG * cosine_RGG).sum() / pair_RGG.sum(), along]
        )

    return facts(np.ones_like(unlike_RG)), facts(unlike_RG)


@EXPERIMENT.claim(
    "masking-like-pairs-leaves-the-largest-gradient",
    source="derived; the score, shared first tokens, is our reading of DaGRPO, arXiv:2512.06337",
    statement=(
        "Masking like pairs of opposite advantages lowers the mean norm of a group's gradient and leaves "
        "the largest one as it is; whole groups of right and wrong responses have the policy gradient's "
        "direction in expectation, masked ones lose it. In each of 8 trees."
    ),
    kind="enumerated",
)
def homogeneous() -> Evidence:
    """Return what masking adds to mean norms, changes of the largest, and departures of whole groups."""
    gaps, lines = [], []
    for seed in range(8):
        whole, left = masked(seed)
        gaps += [max(0.0, left[0] - whole[0]), abs(left[1] - whole[1]), abs(1 - whole[3])]
        gaps.append(short_of(1 - left[3], 1e-4))
        lines.append([left[0] / whole[0], whole[2], left[2], left[3]])
    norm, before, after, along = np.mean(lines, axis=0)
    note = f"misses; on average norm x {norm:.2f}, cosine of opposing pairs {before:.2f} to {after:.2f}, "
    return exact(gaps, 1e-9, f"{note}cosine with the policy gradient {along:.2f}")
