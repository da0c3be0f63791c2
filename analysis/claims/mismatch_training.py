"""Claims about mismatch and lag as two factors: what each does to the log-ratio, and both to training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.claims.base import Evidence, claim, exact, mean_above_zero
from analysis.claims.dynamics import short_of
from analysis.claims.equivalence import equivalent
from analysis.claims.mismatch import PI
from envs.arrays import Floats

if TYPE_CHECKING:
    from testbed.mismatch.ratio_law import RatioLaw

DRIFT = np.array([0.9, -0.4, 0.2])
"""Direction in which the logits of PI drift away from it."""
SIGMA = "mismatch_args.sigma"


@claim(
    "at-learning-rate-zero-all-drift-is-mismatch",
    source="control arm against drift at learning rate 0, allenai/open-instruct issue 1473; derived",
    kind="exact",
    statement=(
        "With learning rate 0 lag changes no logged bit but the ages, which are the lag, whatever the "
        "engine; at rate 1 it changes a quarter of the columns or more. At rate 0 without an engine the "
        "ratio is 1, and with one that draws nothing its exact law is the same in every batch."
    ),
)
def control_arm() -> Evidence:
    """Return 1 per logged column that lag changes at rate 0, and how far exact laws move between batches."""
    import torch

    from testbed.config.run import Run
    from testbed.worlds.base import BehaviorWeights
    from testbed.worlds.build import build_world

    arguments: tuple[tuple[str, Any], ...]
    still = Run(task="tree", prompts=4, group=4, steps=6, learning_rate=0.0, log_every=1)
    gaps, least = [], np.inf
    for name, arguments in (("off", ()), ("logit-noise", (("sigma", 0.5),)), ("temperature", ())):
        gaps += _bits_that_lag_changes(replace(still, mismatch=name, mismatch_args=arguments))
    moved = _bits_that_lag_changes(replace(still, learning_rate=1.0))
    gaps.append(short_of(float(np.mean(moved)), 0.25))
    for name in ("off", "fp8-tensor", "temperature", "bf16"):
        arguments = (("matrices", "all"),) if name == "fp8-tensor" else ()
        world: Any = build_world((replace(still, mismatch=name, mismatch_args=arguments),))
        draws_RP = np.random.default_rng(3).standard_normal(world.initial().shape)
        theta_RP = world.initial() + 2.0 * torch.from_numpy(draws_RP)
        laws = [world.truth(theta_RP, theta_RP, step, BehaviorWeights(theta_RP)) for step in range(4)]
        kl = np.array([law["exact/kl_mu_pi"][0] for law in laws])
        gaps.append(float(np.ptp(kl)))
        if name == "off":
            gaps.append(float(abs(kl[0])))
        else:
            least = min(least, float(kl[0]))
    gaps.append(short_of(least, 1e-6))
    return exact(gaps, 1e-12, f"columns changed by lag, or movement of KL; the least KL is {least:.2g} nats")


def _bits_that_lag_changes(run: Any) -> list[float]:
    """Return 0 per logged column that is the same at lag 4, else 1; and how far the last age is from 4."""
    from testbed.training.loop import train

    fresh, stale = train(run), train(replace(run, lag=4))
    own = ("cell", "lag", "staleness/age_mean_token", "staleness/age_max_token")
    pairs = [(np.asarray(fresh[key]), np.asarray(stale[key])) for key in fresh if key not in own]
    same = [np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating)) for a, b in pairs]
    age = float(np.asarray(stale["staleness/age_mean_token"])[-1])
    return [*(float(not each) for each in same), abs(age - 4.0)]


@claim(
    "lag-and-mismatch-variances-add-only-if-uncorrelated",
    source="two-factor ratio pi_t/mu = pi_t/pi_(t-k) times pi_(t-k)/mu; derived",
    kind="exact",
    statement=(
        "The variances of the two log-ratios add up for fresh noise, up to a share that halves with their "
        "size; a sampler that is cooler by as much as the policy has sharpened since cancels it, and one "
        "that is hotter by as little doubles the sum."
    ),
)
def variances() -> Evidence:
    """Return misses of the rates and limits, for one token of three with noise +-sigma by enumeration."""
    share = [_noise_excess(size) for size in (0.02, 0.01, 0.005)]
    gaps = [abs(share[i] / share[i + 1] - 2.0) for i in range(2)]
    cooler, hotter = (_temperature_excess(sign, 1e-3) for sign in (1.0, -1.0))
    exactly = _temperature_excess(1.0, 0.3)
    gaps += [abs(exactly + 1.0), abs(cooler + 1.0), abs(hotter - 1.0)]
    note = (
        f"distance from the stated factors; share of the sum at size 0.02 under noise {share[0]:+.2g}, "
        f"cooler {cooler:+.3g}, hotter {hotter:+.3g}"
    )
    return exact(gaps, 0.05, note)


def _moments(log_pi_A: Floats, log_old_A: Floats, log_mu_A: Floats) -> Floats:
    """Return variances under mu of log pi/mu, log pi/old and log old/mu of one token."""
    mu_A, lag_A = np.exp(log_mu_A), log_pi_A - log_old_A
    total, engine = (_law(log_A, log_mu_A).std ** 2 for log_A in (log_pi_A, log_old_A))
    return np.array([total, mu_A @ (lag_A - mu_A @ lag_A) ** 2, engine])


def _law(log_pi_A: Floats, log_mu_A: Floats, length: int = 1) -> RatioLaw:
    """Return the exact law of log pi/mu of a sequence of `length` independent tokens."""
    from testbed.mismatch.ratio_law import enumerated_law

    token_XT = np.indices((len(log_pi_A),) * length).reshape(length, -1).T
    return enumerated_law(log_pi_A[token_XT], log_mu_A[token_XT], np.ones(token_XT.shape))


def _softmax_log(logit_A: Floats) -> Floats:
    found: Floats = logit_A - np.log(np.exp(logit_A).sum())
    return found


def _noises(size: float) -> Iterator[Floats]:
    """Yield every vector of +-size, one entry per token."""
    for corner in np.ndindex(*(2,) * len(PI)):
        yield size * (2.0 * np.array(corner) - 1.0)


def _noise_excess(size: float) -> float:
    """Return (total - sum) / sum of the variances, averaged over noise as large as the drift."""
    old_A = np.log(PI)
    pi_A = _softmax_log(old_A + size * DRIFT)
    total, lag, noise = np.mean(
        [_moments(pi_A, old_A, _softmax_log(old_A + z_A)) for z_A in _noises(size)], axis=0
    )
    return float((total - lag - noise) / (lag + noise))


def _temperature_excess(sign: float, size: float) -> float:
    """Return the same where the policy sharpened by 1 + size and the sampler is cooler (1) or hotter (-1)."""
    import torch

    from testbed.mismatch import engine
    from testbed.mismatch.behavior import Behavior
    from testbed.policies.tabular import TabularPolicy

    old_A = np.log(PI)
    hot = engine("temperature", temperature=1.0 / (1.0 + sign * size))
    sampler = Behavior(TabularPolicy(1, len(PI)), hot, (0,))
    mu_A = sampler.log_table(torch.from_numpy(old_A)[None], step=0).numpy()[0, 0]
    total, lag, mismatch = _moments(_softmax_log((1 + size) * old_A), old_A, mu_A)
    return float((total - lag - mismatch) / (lag + mismatch))


@claim(
    "ess-of-lag-and-fresh-noise-multiplies-in-large-vocabularies",
    source="second moment of pi_t/mu for mu = softmax(log pi_(t-k) + noise); derived",
    kind="exact",
    statement=(
        "For one token, averaged over independent symmetric noise z on the logits, E W^2 = m^2 E W_lag^2 - "
        "(m^2 - 1) sum pi_t^2 with m = E exp(z): where sum pi_t^2 is small the two ESS multiply."
    ),
)
def ess_product() -> Evidence:
    """Return relative errors of the formula over drifts and noises, and of the product for even laws."""
    gaps = []
    for size in (0.1, 0.5, 1.0, 2.0):
        square = np.cosh(size) ** 2
        for drift in (0.0, 0.5, 1.5):
            old_A = np.log(PI)
            pi_A = np.exp(_softmax_log(old_A + drift * DRIFT))
            each = [_law(np.log(pi_A), _softmax_log(old_A + z_A)) for z_A in _noises(size)]
            found = np.mean([law.mass**2 / law.ess_kish for law in each])
            formula = square * (pi_A @ (pi_A / PI)) - (square - 1.0) * (pi_A @ pi_A)
            gaps.append(float(abs(found / formula - 1.0)))
    excess = [1.0 / V * (1.0 - np.cosh(1.0) ** -2) for V in (3, 300, 30000)]
    gaps += [short_of(excess[0], 0.1), 0.0 if excess[-1] < 1e-4 else 1.0]
    note = (
        f"relative error; for an even law on 3, 300, 30,000 tokens the product misses E W^2 by "
        f"{', '.join(f'{x:.2g}' for x in excess)} at noise 1"
    )
    return exact(gaps, 1e-12, note)


@claim(
    "lag-log-ratio-grows-linearly-if-coherent-and-as-a-root-if-not",
    source="drift of the log-ratio with lag; derived, conditions added",
    kind="exact",
    statement=(
        "Where every state has the same law, the standard deviation of a sequence's log(pi_t/pi_(t-k)) is "
        "exactly k sqrt(T) times a token's at lag 1 if each update moves the logits alike, and over all "
        "random walks of the logits its mean square grows as k T."
    ),
)
def lag_growth() -> Evidence:
    """Return distances from k sqrt(T), and of the mean variance over all walks from k T, by enumeration."""
    one = float(np.sqrt(_variance(0.3 * DRIFT, 1)))
    gaps = [
        abs(np.sqrt(_variance(0.3 * lag * DRIFT, length)) / one - lag * np.sqrt(length))
        for lag in range(1, 9)
        for length in range(1, 4)
    ]
    steps = list(_noises(0.3))
    walks, means = [np.zeros(len(PI))], []
    for _ in range(4):
        walks = [walk_A + step_A for walk_A in walks for step_A in steps]
        means.append(np.mean([_variance(walk_A, 1) for walk_A in walks]))
    gaps += [abs(means[k] / means[0] - (k + 1)) for k in range(4)]
    gaps += [abs(np.mean([_variance(z_A, 2) for z_A in steps]) / means[0] - 2.0)]
    return exact(gaps, 1e-9, "largest distance of std or mean variance, relative to lag 1, from its law")


def _variance(move_A: Floats, length: int) -> float:
    """Return Var_mu of log pi/mu of a sequence of tokens, mu = PI, after its logits moved; by enumeration."""
    return float(_law(_softmax_log(np.log(PI) + move_A), np.log(PI), length).std ** 2)


@claim(
    "training-drifts-coherently-over-short-lags",
    source="drift of the log-ratio with lag: coherent 1, random walk 1/2",
    kind="statistical",
    table="mismatch-staleness",
    statement=(
        "In training without mismatch -ln ESS grows from lag 2 to lag 8 by more than the power 1.5, halfway "
        "between a random walk's 1 and coherent drift's 2."
    ),
)
def coherent(table: pd.DataFrame) -> Evidence:
    """Return the mean over seeds of the exponent between the two lags, less 1.5."""
    calm = _learning(table, "reinforce")
    calm = calm[calm[SIGMA] == 0].pivot(index="seed", columns="lag", values="mean exact/ess_kish_sequence")
    slope_N = np.log(np.log(calm[8]) / np.log(calm[2])) / np.log(4.0)
    return mean_above_zero(slope_N - 1.5, f"mean exponent less 1.5; the exponent is {slope_N.mean():.2f}")


@claim(
    "mismatch-and-lag-hurt-more-together",
    source="two-factor grid of mismatch and lag, landscape of asynchronous RL; derived question",
    kind="statistical",
    table="mismatch-staleness",
    statement=(
        "Without importance weights the value lost to the largest noise and the largest lag together is more "
        "than the sum of what each costs alone."
    ),
)
def together(table: pd.DataFrame) -> Evidence:
    """Return the mean over seeds of the loss together less the two losses alone, in value at the end."""
    value = _corners(_learning(table, "reinforce"))
    extra_N = value["noise"] + value["lag"] - value["calm"] - value["both"]
    means = ", ".join(f"{name} {value[name].mean():.3f}" for name in ("calm", "noise", "lag", "both"))
    return mean_above_zero(extra_N, f"loss together less the losses alone; final values: {means}")


@claim(
    "sequence-weights-repair-mismatch-and-lag-together",
    source="importance weights of the sequence, pi/mu, whatever makes them differ; derived question",
    kind="statistical",
    table="mismatch-staleness",
    statement="At the largest noise and the largest lag together, sequence weights end at a higher value.",
)
def repaired(table: pd.DataFrame) -> Evidence:
    """Return the mean over seeds of the final value with sequence weights minus that without."""
    arms = {name: _corners(_learning(table, name))["both"] for name in ("importance", "reinforce")}
    gain_N = arms["importance"] - arms["reinforce"]
    note = (
        f"difference of final values, {arms['importance'].mean():.3f} against {arms['reinforce'].mean():.3f}"
    )
    return mean_above_zero(gain_N, note)


def _learning(table: pd.DataFrame, recipe: str) -> pd.DataFrame:
    """Return a recipe's cells that learn."""
    return table[(table["recipe"] == recipe) & (table["learning_rate"] > 0)]


def _corners(cells: pd.DataFrame) -> pd.DataFrame:
    """Return final values by seed at the corners of the grid."""
    value = cells.pivot(index="seed", columns=[SIGMA, "lag"], values="exact/value")
    sigma, lag = cells[SIGMA].max(), cells["lag"].max()
    corners = {"calm": (0.0, 0), "noise": (sigma, 0), "lag": (0.0, lag), "both": (sigma, lag)}
    return pd.DataFrame({name: value[place] for name, place in corners.items()})


ROUNDING = ("bf16", "int8", "fp8-tensor", "fp8-tensor+fp8-activations")
"""Engines whose error stays what it is for a whole response."""


@claim(
    "precision-noise-grows-as-root-t-in-a-transformer",
    source="rollout precision as in Jet-RL, arXiv:2601.14243; growth derived",
    kind="statistical",
    table="mismatch-growth",
    statement=(
        "In a small transformer the standard deviation of log(pi/mu) over the first T tokens grows as a "
        "power of T within 0.05 of 1/2, T from 1 to 64: for weights in bf16, int8 and e4m3, for e4m3 "
        "activations too, and for logit noise."
    ),
)
def root_t_in_a_transformer(table: pd.DataFrame) -> Evidence:
    """Return the equivalence evidence of the exponents, a group per engine, one value per seed."""
    slope = _exponents(table)
    means = ", ".join(f"{name} {mean:.3f}" for name, mean in slope.mean().items())
    pairs = {str(name): slope[name].to_numpy() - 0.5 for name in slope}
    return equivalent(pairs, 0.05, f"0.05 less the distance of the mean exponent from 1/2: {means}")


@claim(
    "roundings-outgrow-root-t-in-a-transformer",
    source="a perturbation that stays has a drift that varies; see log-mismatch-outgrows-root-t",
    kind="statistical",
    table="mismatch-growth",
    statement=(
        "There the exponent of roundings, which stay what they are while a response is written, is above 1/2 "
        "on average over bf16, int8, e4m3 weights, and e4m3 weights with activations."
    ),
)
def outgrows(table: pd.DataFrame) -> Evidence:
    """Return the mean over seeds of the mean exponent of the roundings, less 1/2."""
    slope = _exponents(table)
    mean_N = slope[list(ROUNDING)].mean(axis=1)
    return mean_above_zero(
        mean_N - 0.5, f"mean exponent less 1/2; logit noise {slope['logit-noise'].mean():.3f}"
    )


def _exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Return least-squares slopes of log deviation in log length, a row per seed, a column per engine."""
    wide = table.pivot(index=["engine", "seed"], columns="length", values="deviation")
    length_L = np.log(wide.columns.to_numpy(dtype=np.float64))
    centered_L = length_L - length_L.mean()
    slope_N = np.log(wide.to_numpy()) @ centered_L / (centered_L @ centered_L)
    return pd.Series(slope_N, wide.index).unstack("engine")
