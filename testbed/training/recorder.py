"""The log of a pack: rows of metrics per cell and step, as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from operator import is_not
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch import Tensor

from testbed.config.run import Run, cell_id
from testbed.data.batch import Batch
from testbed.data.rollout import Rollout
from testbed.diagnostics.held_out_metrics import held_out_metrics
from testbed.diagnostics.ratio_metrics import clip_share, log_ratio_histogram, masked_mean, ratio_metrics
from testbed.diagnostics.sign_shares import sign_shares
from testbed.diagnostics.tail_indices import Estimated, hill, pareto_k
from testbed.inspection.effective_weights import effective_weights
from testbed.recipes.composition import Recipe

if TYPE_CHECKING:
    from testbed.staleness.schedule_plan import Generated
    from testbed.training.learner import Learner
    from testbed.training.update import State, Update
    from testbed.worlds.world import World

Columns: TypeAlias = dict[str, "np.ndarray | list[object]"]


class Recorder:
    """Collect metrics [R] at logged steps and return them by cell, in the given order of the cells.

    Args:
        runs: the cells in stacked order.
        order: position of each stacked cell in the order of the pack.
        world, learners: the pack's.
        start_RP: weights at the start.
    """

    def __init__(
        self,
        runs: tuple[Run, ...],
        order: Sequence[int],
        world: "World",
        learners: "tuple[Learner, ...]",
        start_RP: Tensor,
    ) -> None:
        self.runs, self.world, self.learners, self.start_RP = runs, world, learners, start_RP
        self.rollouts_R, self.asked_R = np.zeros(len(runs)), np.zeros(len(runs))
        self.counted: list[Recipe] = []
        self.position = np.argsort(order)
        self.rows: list[dict[str, np.ndarray]] = []
        self.steps: list[int] = []
        self.histogram: Tensor | None = None

    def due(self, step: int) -> bool:
        """Return whether this step is logged: every log_every-th and the last."""
        return step % self.runs[0].log_every == 0 or step == self.runs[0].steps - 1

    def add(
        self, step: int, state: "State", generated: "Generated", rollout: Rollout, update: "Update"
    ) -> None:
        """Count this step's ratios; at a logged step, add a row per cell: the state before its update."""
        histogram_RE = log_ratio_histogram(update.log_w_RB)
        self.histogram = histogram_RE if self.histogram is None else self.histogram + histogram_RE
        self.rollouts_R += self._generated(generated)
        if not self.due(step):
            return
        world, theta_RP = self.world, state.theta_RP
        blocks = list(zip(self.learners, update.batches, strict=True))
        entropy_RBT = update.entropy_RBT
        if entropy_RBT is None:
            entropy_RBT = world.entropy(theta_RP, rollout)
        row: dict[str, Tensor | np.ndarray] = {
            "reward/mean": rollout.reward_RB.mean(-1),
            "actor/entropy": masked_mean(entropy_RBT, rollout.mask_RBT),
            "actor/grad_norm": update.grad_RP.norm(dim=-1),
            "actor/learning_rate": update.rate_R,
            "response_length/mean": rollout.mask_RBT.sum(-1).double().mean(-1),
            "diverged": ~(state.alive_R & update.finite_R),
        }
        row.update(_joined([_weight_metrics(learner, update.logp_RBT, b, step) for learner, b in blocks]))
        row.update(_joined([ratio_metrics(update.logp_RBT[learner.rows], b) for learner, b in blocks]))
        critics = [learner.critic.noted for learner in self.learners if learner.critic is not None]
        row.update(_joined(critics) if critics else {})
        row.update(sequence_tails(update.log_w_RB))
        row.update(world.truth(theta_RP, -update.grad_RP, step, generated.behavior))
        row.update(age_metrics(rollout, step))
        self._keep(row, step, state, generated)

    def add_empty(self, step: int, state: "State", generated: "Generated") -> None:
        """Log the known metrics of a step with an empty batch; the rest of its row is NaN."""
        self.rollouts_R += self._generated(generated)
        if self.due(step):
            still_RP = torch.zeros_like(state.theta_RP)
            truth = self.world.truth(state.theta_RP, still_RP, step, generated.behavior)
            self._keep({"diverged": ~state.alive_R, **truth}, step, state, generated)

    def _generated(self, generated: "Generated") -> np.ndarray:
        """Return the number of sequences generated for this step, [R], discarded ones included."""
        first, counts = self.runs[0], generated.counts
        recipes = [learner.recipe for learner in self.learners]
        if len(recipes) != len(self.counted) or any(map(is_not, recipes, self.counted)):
            self.counted = recipes
            for learner, recipe in zip(self.learners, recipes, strict=True):
                asked = recipe.baselines.reference_group * ("reference_reward_BN" in recipe.needs)
                self.asked_R[learner.rows] = first.prompts * (asked + ("greedy_reward_B" in recipe.needs))
        made_R = first.prompts * first.group + self.asked_R
        if "staleness/replayed_share" in counts:
            # Discarded replays were counted when they were fresh.
            return made_R - counts["staleness/replayed_share"] * first.prompts * first.group
        return made_R + counts.get("staleness/discarded", 0.0) * first.group

    def _keep(
        self, row: dict[str, Tensor | np.ndarray], step: int, state: "State", generated: "Generated"
    ) -> None:
        """Log a row with the schedule's counters, the accuracy and the histogram."""
        row.update(generated.counts)
        # Traces that a store tried and discarded were generated too.
        row["rollouts"] = self.rollouts_R + self.world.counts().get("prefix/attempts", 0.0)
        last = step == self.runs[0].steps - 1
        drawn = self.world.held_out(state.theta_RP, self.start_RP, len(self.rows), last)
        row.update(held_out_metrics(drawn))
        row.update(self.world.counts())
        if self.histogram is not None:
            row["rollout_corr/log_rho_sequence_histogram"] = self.histogram
        self.histogram = None
        self.rows.append({name: _numpy(name, value) for name, value in row.items()})
        self.steps.append(step)

    def add_last_pass(self, step: int) -> None:
        """Complete a logged step's row with metrics of the last pass over its batch."""
        if not self.due(step):
            return
        row = self.rows[-1]
        shares = [torch.from_numpy(row["actor/clip_share"][learner.rows]) for learner in self.learners]
        for index, learner in enumerate(self.learners):
            if learner.recipe.passes > 1 and learner.last_pass is not None:
                logp_CBT, batch, hyper = learner.last_pass
                function = partial(learner.recipe.losses, hyper=hyper)
                shares[index] = clip_share(effective_weights(function, logp_CBT, batch), batch)
        last = torch.cat([s.double().cpu() for s in shares])
        row["actor/clip_share_last_pass"] = _numpy("clip_share", last)

    def columns(self) -> Columns:
        """Return long-format columns sorted by cell (in the pack's order), then step."""
        runs = [self.runs[i] for i in self.position]
        repeat = len(self.steps)
        names, steps = np.repeat([cell_id(run) for run in runs], repeat), np.array(self.steps, dtype=np.int64)
        table: Columns = {"cell": names, "step": np.tile(steps, len(runs))}
        for name in asdict(runs[0]):
            values = [getattr(run, name) for run in runs]
            if name.endswith("_args"):
                values = [",".join(f"{k}={v}" for k, v in pairs) for pairs in values]
            table[name] = np.repeat(np.array(values), repeat)
        for name, missing in blanks(self.rows).items():
            stacked = np.stack([row.get(name, missing) for row in self.rows], axis=1)[self.position]
            flat = stacked.reshape(-1, *stacked.shape[2:])
            table[name] = flat if flat.ndim == 1 else list(flat)
        return table


def blanks(rows: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return every metric of any row with its filler for missing rows: NaN, or counts of 0."""
    found = {name: value for row in reversed(rows) for name, value in row.items()}
    named = dict.fromkeys(name for row in rows for name in row)
    empty = {name: 0.0 if name.endswith("histogram") else np.nan for name in named}
    return {name: np.full_like(found[name], value) for name, value in empty.items()}


def age_metrics(rollout: Rollout, step: int) -> dict[str, Tensor]:
    """Return mean and largest age of the tokens under the mask, in optimizer steps; each [R]."""
    if rollout.version_RBT is None:
        return {}
    age_RBT = (step - rollout.version_RBT).to(rollout.logp_mu_RBT.dtype)
    oldest_RBT = age_RBT.masked_fill(~rollout.mask_RBT, -torch.inf)
    oldest_R, mean_R = oldest_RBT.flatten(1).amax(-1), masked_mean(age_RBT, rollout.mask_RBT)
    return {"staleness/age_mean_token": mean_R, "staleness/age_max_token": oldest_R}


def sequence_tails(log_w_RB: Tensor) -> dict[str, np.ndarray]:
    """Return k-hat and Hill's index of the sequence ratios, each [R]; NaN for a tail too short to fit.

    Sequences whose ratio is NaN or +inf are left out.
    """
    log_w = log_w_RB.detach().double().cpu().numpy()
    k_R, hill_R = np.full((2, len(log_w)), np.nan)
    for r, log_w_B in enumerate(log_w):
        kept_M = log_w_B[log_w_B < np.inf]
        if kept_M.size and kept_M.max() > -np.inf and isinstance(tail := pareto_k(kept_M), Estimated):
            # Hill's index takes logarithms: weights of 0 have none.
            most = int(np.isfinite(kept_M).sum()) - 1
            k_R[r], hill_R[r] = tail.k, hill(kept_M, min(tail.tail, most))
    return {"rollout_corr/pareto_k_sequence": k_R, "rollout_corr/tail_hill_sequence": hill_R}


def _weight_metrics(learner: "Learner", logp_RBT: Tensor, batch: Batch, step: int) -> dict[str, Tensor]:
    """Return metrics of an arm's effective weights, each [C]."""
    function = partial(learner.recipe.losses, hyper=learner.hyper(step))
    weight_CBT = effective_weights(function, logp_RBT[learner.rows], batch)
    return {"actor/clip_share": clip_share(weight_CBT, batch), **sign_shares(weight_CBT, batch)}


def _joined(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _numpy(name: str, value: Tensor | np.ndarray) -> np.ndarray:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    return array if name.endswith("histogram") else array.astype(np.float64)
