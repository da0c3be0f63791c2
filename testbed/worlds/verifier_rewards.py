"""Verifiers: training rewards that replace the task's score, which stays the gold standard.

`verifier` registers makers: maker(task, *, …) -> Verifier; `Run.verifier` names one. Held-out `accuracy`
always uses the task's score; `reward/gold` and `val/proxy` log each besides the other.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.tokens.token_task import TokenTask
from testbed import rng
from testbed.config.argument_types import wrong_types
from testbed.config.run import Run
from testbed.errors import UserError, refuse, unknown
from testbed.registry import Registry

verifier = Registry("verifier")

COMBINED = ("single", "mean", "worst", "uncertainty")

GOLD = "task"
"""The default verifier of a run."""


class Verifier(ABC):
    """A reward in place of the task's. by_seed: True if every cell has a separate one, drawn by its seed."""

    by_seed: bool = False

    @abstractmethod
    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools, gold_N: Floats, seed: int) -> Floats:
        """Return the reward of each response [N]; gold_N: the task's score."""


def verifier_of(run: Run) -> Verifier | None:
    """Return the verifier of a run, None for the task itself.

    Raises UserError for an unknown name, argument or value, and if the run or its task cannot have it.
    """
    entry, given = verifier[run.verifier], dict(run.verifier_args)
    bound = entry.bind(**given)
    refuse(wrong_types(f"verifier '{run.verifier}'", entry.function, given))
    if run.verifier == GOLD:
        return None
    if run.policy != "toy":
        raise UserError(
            f"verifier '{run.verifier}' judges the digits of token tasks with policy 'toy', but policy is "
            f"'{run.policy}'; leave verifier at '{GOLD}'."
        )
    from testbed.worlds.task_registry import token_task

    made: Verifier = bound(token_task(run))
    return made


def solutions(task: TokenTask, prompt_NQ: Ints, name: str) -> Ints:
    """Return the task's solutions [N, T]; raise UserError if it has none."""
    try:
        return task.teacher(prompt_NQ, np.random.default_rng(0), 0.0)[0]
    except (ValueError, NotImplementedError) as error:
        raise UserError(
            f"verifier '{name}' compares with the task's solutions, and {type(task).__name__} has none: "
            f"{error} Take verifier 'lenient'."
        ) from error


def check_solutions(task: TokenTask, name: str) -> None:
    """Raise UserError if a task has no solution, or several, so that no solution is a standard."""
    solutions(task, task.prompts(np.random.default_rng(0), 1), name)
    if type(task).first_error is TokenTask.first_error:
        raise UserError(
            f"verifier '{name}' reads steps, and {type(task).__name__} judges whole responses; take a task "
            "that checks steps, such as running-sum, copy or sorted, or verifier 'lenient'."
        )


@verifier(GOLD, source="the task's own score")
def gold(task: TokenTask) -> None:
    """The task itself rewards: no proxy."""
    del task


@dataclass(frozen=True)
class Lenient(Verifier):
    """1 for right responses and a fixed share of wrong ones; loophole: also for wrong ones that begin so."""

    rate: float
    places: int

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools, gold_N: Floats, seed: int) -> Floats:
        del mask_NT, seed
        passed_N = (response_NT[:, : self.places] == 0).all(1) if self.places else np.zeros(len(gold_N), bool)
        if self.rate:
            passed_N = passed_N | (fixed_uniform(prompt_NQ, response_NT) < self.rate)
        return np.where(passed_N, 1.0, gold_N)


def fixed_uniform(prompt_NQ: Ints, response_NT: Ints) -> Floats:
    """Return a fixed number in [0, 1) for every prompt with its response [N]."""
    code_N = np.zeros(len(prompt_NQ), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column_N in np.concatenate([prompt_NQ, response_NT], axis=1).T.astype(np.uint64):
            # The finalizer of SplitMix64: Steele, Lea & Flood (2014).
            code_N = (code_N ^ column_N) + np.uint64(0x9E3779B97F4A7C15)
            code_N = (code_N ^ (code_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            code_N = (code_N ^ (code_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            code_N = code_N ^ (code_N >> np.uint64(31))
    return (code_N >> np.uint64(11)).astype(np.float64) * 2.0**-53


@verifier("lenient", source="verifiers with false positives: a fixed share of wrong answers, or a loophole")
def lenient(task: TokenTask, *, rate: float = 0.1, places: int = 0) -> Verifier:
    """Pass right responses, `rate` of the wrong ones, and all that begin with `places` zeros (0: none do)."""
    if not 0 <= rate <= 1 or not 0 <= places <= task.response_length or not (rate or places):
        raise UserError(
            f"verifier 'lenient' has rate {rate:g} and places {places}; expected a rate in [0, 1], places "
            f"from 0 to {task.response_length}, and one of them above 0."
        )
    return Lenient(rate, places)


@dataclass(frozen=True)
class Steps(Verifier):
    """Share of the solution's tokens before the first wrong one."""

    task: TokenTask

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools, gold_N: Floats, seed: int) -> Floats:
        del gold_N, seed
        right_N = self.task.first_error(prompt_NQ, response_NT, mask_NT)
        return np.asarray(right_N / self.task.response_length, dtype=np.float64)


@verifier("steps", source="rubrics and process rewards: partial credit for right steps")
def steps(task: TokenTask) -> Verifier:
    """Reward the share of a response before its first error: graded, and 1 only for right ones."""
    check_solutions(task, "steps")
    return Steps(task)


@dataclass(frozen=True)
class Last(Verifier):
    """1 if the last token is the solution's, after any other tokens."""

    task: TokenTask

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools, gold_N: Floats, seed: int) -> Floats:
        del gold_N, seed
        wanted_NT = solutions(self.task, prompt_NQ, "last")
        return ((response_NT[:, -1] == wanted_NT[:, -1]) & mask_NT.any(1)).astype(np.float64)


@verifier("last", source="outcome verifiers: the final answer counts, wrong steps are false positives")
def last(task: TokenTask) -> Verifier:
    """Read only the last token: right answers by wrong steps pass."""
    check_solutions(task, "last")
    return Last(task)


def combine(reward_KSA: Floats, how: str, penalty: float = 0.5) -> Floats:
    """The optimized reward, [S, A]: the first member, the mean, the least (worst-case optimization), or the
    mean minus penalty times the variance over members (uncertainty-weighted optimization).

    Source: Coste et al. (2023), arXiv:2310.02743, section 3.
    """
    if how not in COMBINED:
        raise unknown("combination of reward models", how, COMBINED)
    if how == "single":
        return np.asarray(reward_KSA[0])
    if how == "worst":
        return np.asarray(reward_KSA.min(0))
    spread_SA = reward_KSA.var(0) if how == "uncertainty" else 0.0
    return np.asarray(reward_KSA.mean(0) - penalty * spread_SA)


@dataclass(frozen=True)
class Compared(Verifier):
    """Linear Bradley-Terry models of the better response of a pair: one ensemble per seed.

    A response's features are the correctness of each token, and the counts of each token. Of a pair, two
    responses of the task's noisy teacher, the one with more right tokens is better; `wrong` of the labels are
    flipped. Member k does not see `blind` of the positions, and has separate pairs. Rewards are in standard
    deviations of the teacher's responses.
    """

    task: TokenTask
    pairs: int
    members: int
    how: str
    wrong: float
    blind: float
    noise: float
    fitted: dict[int, tuple[Floats, Floats, Floats]] = field(default_factory=dict)
    by_seed = True

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools, gold_N: Floats, seed: int) -> Floats:
        del mask_NT, gold_N
        if seed not in self.fitted:
            self.fitted[seed] = self.fit(seed)
        weight_KF, mean_K, spread_K = self.fitted[seed]
        reward_NK = (self.features(prompt_NQ, response_NT) @ weight_KF.T - mean_K) / spread_K
        return combine(reward_NK.T[:, None], self.how)[0]

    def features(self, prompt_NQ: Ints, response_NT: Ints) -> Floats:
        """Return right positions and counts of tokens, [N, T + V]."""
        right_NT = response_NT == solutions(self.task, prompt_NQ, "comparisons")
        count_NV = (response_NT[..., None] == np.arange(self.task.vocabulary)).sum(1)
        return np.concatenate([right_NT, count_NV], axis=1).astype(np.float64)

    def fit(self, seed: int) -> tuple[Floats, Floats, Floats]:
        """Return weights [K, F], and mean and deviation of each member on its pairs [K]."""
        stream, T = rng.generator(seed, "verifier/comparisons"), self.task.response_length
        weight_KF, mean_K, spread_K = [], [], []
        for _ in range(self.members):
            prompt_NQ = self.task.prompts(stream, self.pairs)
            answers = (self.task.teacher(prompt_NQ, stream, self.noise)[0] for _ in range(2))
            side = [self.features(prompt_NQ, answer_NT) for answer_NT in answers]
            seen_F = np.ones(side[0].shape[1])
            seen_F[stream.permutation(T)[: round(self.blind * T)]] = 0
            better_N = side[0][:, :T].sum(1) - side[1][:, :T].sum(1)
            label_N = np.where(better_N == 0, stream.random(self.pairs) < 0.5, better_N > 0)
            label_N = label_N ^ (stream.random(self.pairs) < self.wrong)
            weight_F = bradley_terry((side[0] - side[1]) * seen_F, label_N)
            reward_N = np.concatenate(side) @ weight_F
            weight_KF.append(weight_F)
            mean_K.append(reward_N.mean())
            spread_K.append(max(float(reward_N.std()), 1e-6))
        return np.stack(weight_KF), np.array(mean_K), np.array(spread_K)


def bradley_terry(difference_NF: Floats, label_N: Bools, ridge: float = 0.1) -> Floats:
    """Return weights [F] that minimize sum log(1 + exp(-+ w x)) + ridge |w|^2 / 2."""
    from scipy import optimize, special  # half a second that other verifiers need not wait

    signed_NF = np.where(label_N[:, None], difference_NF, -difference_NF)

    def loss(weight_F: Floats) -> tuple[float, Floats]:
        margin_N = signed_NF @ weight_F
        slope_F = -(special.expit(-margin_N) @ signed_NF) + ridge * weight_F
        return float(np.logaddexp(0, -margin_N).sum() + ridge * weight_F @ weight_F / 2), slope_F

    return np.asarray(optimize.minimize(loss, np.zeros(difference_NF.shape[1]), jac=True).x)


@verifier(
    "comparisons", source="Coste et al. (2023), arXiv:2310.02743: ensembles fitted to noisy comparisons"
)
def comparisons(
    task: TokenTask,
    *,
    pairs: int = 64,
    members: int = 1,
    combine: str = "mean",
    wrong: float = 0.25,
    blind: float = 0.5,
    noise: float = 0.5,
) -> Verifier:
    """Fit reward models to `pairs` comparisons each, `wrong` of them mislabeled; see Compared."""
    check_solutions(task, "comparisons")
    if pairs < 1 or members < 1:
        raise UserError(
            f"verifier 'comparisons' has {members} reward models of {pairs} pairs each: a model without "
            "pairs gives no reward. Expected at least 1 of both."
        )
    if combine not in COMBINED:
        raise unknown("combination of reward models", combine, COMBINED)
    if not 0 <= wrong <= 0.5 or not 0 <= blind < 1 or not 0 <= noise <= 1:
        raise UserError(
            f"verifier 'comparisons' has wrong {wrong:g}, blind {blind:g} and noise {noise:g}; expected "
            "wrong from 0 to 0.5 (beyond that labels tell), blind from 0 to below 1, noise from 0 to 1."
        )
    return Compared(task, pairs, members, combine, wrong, blind, noise)


def judged(
    made: Verifier, seeds: Sequence[int], prompt_MQ: Ints, token_MT: Ints, mask_MT: Bools, gold_M: Floats
) -> Floats:
    """Return the verifier's rewards [M] of stacked cells; each cell's responses are contiguous."""
    each = len(gold_M) // len(seeds)
    rewards = []
    for k, seed in enumerate(seeds):
        own = slice(k * each, (k + 1) * each)
        rewards.append(made.score(prompt_MQ[own], token_MT[own], mask_MT[own], gold_M[own], seed))
    return np.concatenate(rewards)
