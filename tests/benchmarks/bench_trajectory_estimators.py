"""Time of the trajectory estimators against scope-rl: one large data set, and many small ones.

Both sides start from the same arrays: reward, action, pscore, the target's [..., N, T, 4] probabilities and a
model's Qhat. The peer ends at a value; ours at a value, and again at value, standard error and ESS. Our time
includes the checks and the building of the data, once per estimator, and once for all six together. The
peer takes one data set per call, ours all of them. Processor seconds of one thread, peer and ours in turns:
other processes on the machine count little. Reading every array once is timed as well: no implementation
can be faster than that.

scope-rl 0.2.1 imports d3rlpy and an old gym, which do not install on Python 3.11. Its estimators use neither:
empty modules stand in for what is missing, and its packages' __init__ files, which import all the rest, are
not run. Without scope-rl the same formulas in plain numpy, vectorized and without checks, stand in for it.

    python tests/benchmarks/bench_trajectory_estimators.py [--rounds 7] [--peer FOLDER]

FOLDER holds scope-rl: pip install --target FOLDER --no-deps scope-rl==0.2.1.
"""

import argparse
import importlib
import statistics
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from testbed.estimators import estimator
from testbed.estimators.trajectory_weights import LoggedEpisodes

SHAPES = {"100,000 episodes of 20 steps": (1, 100_000, 20), "1,000 data sets of 50 by 5": (1_000, 50, 5)}
STATES, ACTIONS, GAMMA, ALL = 10, 4, 0.95, "six over one build"
TARGET = 20.0
"""Times faster than the peer, for the values of all six over one build."""
SHARED = {
    "trajectory_is": "TrajectoryWiseImportanceSampling", "trajectory_wis": "SelfNormalizedTIS",
    "pdis": "PerDecisionImportanceSampling", "cwpdis": "SelfNormalizedPDIS", "trajectory_dr": "DoublyRobust",
    "wdr": "SelfNormalizedDR",
}  # fmt: skip
MODELED = ("trajectory_dr", "wdr")
Arrays = dict[str, Any]
Values = NDArray[np.float64]
Peer = Callable[[str, Arrays], Values]


def arrays(shape: tuple[int, int, int]) -> Arrays:
    """Return the logged steps [R, N, T] as a production system would have stored them."""
    rng = np.random.default_rng(0)
    pi_SA, mu_SA = rng.dirichlet(np.full(ACTIONS, 5.0), size=(2, STATES))
    state_NT, action_NT = rng.integers(STATES, size=shape), rng.integers(ACTIONS, size=shape)
    q_TSA = rng.normal(size=(shape[-1], STATES, ACTIONS))
    return {
        "action": action_NT, "reward": rng.normal(size=shape), "pscore": mu_SA[state_NT, action_NT],
        "evaluation_policy_action_dist": pi_SA[state_NT],
        "state_action_value_prediction": q_TSA[np.arange(shape[-1]), state_NT],
    }  # fmt: skip


def built(given: Arrays, *, model: bool) -> LoggedEpisodes:
    """Return checked episodes."""
    return LoggedEpisodes.from_policies(
        action_NT=given["action"], reward_NT=given["reward"], pscore_NT=given["pscore"],
        evaluation_policy_action_dist_NTA=given["evaluation_policy_action_dist"],
        state_action_value_prediction_NTA=given["state_action_value_prediction"] if model else None,
        gamma=GAMMA,
    )  # fmt: skip


def ours(name: str, given: Arrays, *, full: bool = False) -> Values:
    """Return the values of one estimator, or of all over one build; full: standard errors and ESS too."""
    names = tuple(SHARED) if name == ALL else (name,)
    data = built(given, model=any(each in MODELED for each in names))
    for each in names:
        found = estimator[each].function(data)
        if full:
            _ = found.stderr, found.ess
    return np.asarray(found.value)


def stubbed(folder: str) -> Peer | None:
    """Return scope-rl's own estimators, with empty modules for imports that they do not use; None without."""
    source = Path(folder) / "scope_rl"
    if not source.is_dir():
        return None
    for name in ("d3rlpy", "d3rlpy.preprocessing", "gym", "sklearn", "sklearn.utils"):
        try:
            importlib.import_module(name)
        except ImportError:
            stub: Any = types.ModuleType(name)
            stub.ActionScaler = stub.Env = object
            stub.check_scalar = lambda x, *_, **__: x
            stub.check_random_state = np.random.RandomState
            sys.modules[name] = stub
    for name in ("scope_rl", "scope_rl.ope", "scope_rl.ope.discrete"):
        package = types.ModuleType(name)
        package.__path__ = [str(source.parent / name.replace(".", "/"))]
        sys.modules[name] = package
    basic = importlib.import_module("scope_rl.ope.discrete.basic_estimators")

    def play(name: str, given: Arrays) -> Values:
        made, steps = getattr(basic, SHARED[name])(), given["reward"].shape[-1]
        keys = [key for key in given if name in MODELED or key != "state_action_value_prediction"]
        values = []
        for r in range(len(given["reward"])):
            flat = {key: given[key][r].reshape(-1, *given[key].shape[3:]) for key in keys}
            values.append(made.estimate_policy_value(step_per_trajectory=steps, gamma=GAMMA, **flat))
        return np.array(values)

    return play


def textbook(name: str, given: Arrays) -> Values:
    """The formulas as in a textbook, each from the arrays alone and without checks."""
    pi_NTA, action_NT1 = given["evaluation_policy_action_dist"], given["action"][..., None]
    weight_NT = np.cumprod(np.take_along_axis(pi_NTA, action_NT1, -1)[..., 0] / given["pscore"], axis=-1)
    discount_T = GAMMA ** np.arange(weight_NT.shape[-1])
    if name in ("trajectory_is", "trajectory_wis"):
        weight_NT = np.broadcast_to(weight_NT[..., -1:], weight_NT.shape)
    if name in ("trajectory_wis", "cwpdis", "wdr"):
        weight_NT = weight_NT / weight_NT.mean(-2, keepdims=True)
    step_NT = weight_NT * given["reward"]
    if name in MODELED:
        q_NTA = given["state_action_value_prediction"]
        earlier_NT = np.concatenate([np.ones_like(weight_NT[..., :1]), weight_NT[..., :-1]], axis=-1)
        step_NT -= weight_NT * np.take_along_axis(q_NTA, action_NT1, -1)[..., 0]
        step_NT += earlier_NT * (pi_NTA * q_NTA).sum(-1)
    return np.asarray((discount_T * step_NT).sum(-1).mean(-1))


def clock(work: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(given: Arrays, peer: Peer, rounds: int) -> dict[str, Any]:
    """Medians over interleaved rounds, and medians of the rounds' ratios."""
    gaps = [np.abs(ours(name, given) / peer(name, given) - 1.0).max() for name in SHARED]
    times: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for name in (*SHARED, ALL):
            row = times.setdefault(name, {"peer": [], "value": [], "full": []})
            if name == ALL:
                row["peer"].append(sum(times[each]["peer"][-1] for each in SHARED))
            else:
                row["peer"].append(clock(lambda n=name: peer(n, given)))
            row["value"].append(clock(lambda n=name: ours(n, given)))
            row["full"].append(clock(lambda n=name: ours(n, given, full=True)))
    return {
        "largest_relative_gap": float(max(gaps)),
        "megabytes": sum(each.nbytes for each in given.values()) / 1e6,
        "reading_s": min(clock(lambda: [each.sum() for each in given.values()]) for _ in range(rounds)),
        "rows": {name: summary(row) for name, row in times.items()},
    }


def summary(row: dict[str, list[float]]) -> dict[str, float]:
    """Median seconds of the peer and ours, and median and smallest ratio."""
    found = {f"{side}_s": statistics.median(times) for side, times in row.items()}
    for side in ("value", "full"):
        ratios = [p / o for p, o in zip(row["peer"], row[side], strict=True)]
        found |= {f"{side}_ratio": statistics.median(ratios), f"{side}_smallest": min(ratios)}
    return found


def show(title: str, found: dict[str, Any]) -> None:
    """Print one setting."""
    print(f"{title}: reading {found['megabytes']:.0f} MB once takes {1e3 * found['reading_s']:.1f} ms")
    for name, row in found["rows"].items():
        sides = "  ".join(
            f"{label} {1e3 * row[f'{side}_s']:5.1f} ms {row[f'{side}_ratio']:5.1f} x"
            f" ({row[f'{side}_smallest']:.1f})"
            for label, side in (("value", "value"), ("+ stderr, ESS", "full"))
        )
        print(f"  {name:20} peer {1e3 * row['peer_s']:6.1f} ms  {sides}")
    print(f"  target {TARGET:.0f} x for {ALL}, got {found['rows'][ALL]['value_ratio']:.1f} x")
    print(f"  largest relative gap between values {found['largest_relative_gap']:.1e}")


def main() -> int:
    """Print the ratios; exit status 1 when, against scope-rl, the target is missed for all six together."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer", help="folder that scope-rl is installed in")
    given = parser.parse_args()
    numba.set_num_threads(1)
    scope = stubbed(given.peer) if given.peer else None
    found = {t: measure(arrays(shape), scope or textbook, given.rounds) for t, shape in SHAPES.items()}
    print("peer:", "scope-rl 0.2.1, imports stubbed" if scope else "plain numpy (no scope-rl)")
    print(f"times: median; ratios: median (smallest) of {given.rounds} rounds")
    for title, each in found.items():
        show(title, each)
    late = any(each["rows"][ALL]["value_ratio"] < TARGET for each in found.values())
    return int(scope is not None and late)


if __name__ == "__main__":
    sys.exit(main())
