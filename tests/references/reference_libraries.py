"""Values of the offline kernels beside those of libraries that compute the same, by the libraries' own code.

    python tests/references/reference_libraries.py [--peer FOLDER]

prints a row per comparison: library, kernel and largest gap. A library that cannot be imported is named with
the error. FOLDER holds them: pip install --target FOLDER --no-deps d3rlpy==2.8.1 stable-baselines3==2.9.2
cleanrl==0.4.8 obp==0.4.1 pymdptoolbox==4.0b3, and what they import (gym==0.26.2 gym-notices structlog
dataclasses-json marshmallow typing-inspect mypy-extensions colorama h5py scikit-learn joblib threadpoolctl
narwhals). Neural networks are replaced by tables, linear policies and quadratic critics, in doubles.
"""

import argparse
import importlib.metadata
import sys
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from analysis.experiments.offline import logged_policies
from analysis.kernels import one_continuous_action
from envs.continuous import point_mass
from envs.logged_data import exact_model
from envs.mdps import garnet
from testbed.offline import control, tabular_offline

CELLS, STATES, ACTIONS, DISCOUNT, TAU, BETA = 3, 6, 4, 0.9, 0.8, 3.0
Gap = Callable[[], float]


@dataclass(frozen=True)
class Comparison:
    """A library's distribution and module, what is compared, the largest gap that may be, and its measure."""

    library: str
    module: str
    what: str
    most: float
    gap: Gap


def far(ours: Any, theirs: Any) -> float:
    """Largest |ours - theirs| / (1 + |theirs|)."""
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert a.shape == b.shape, (a.shape, b.shape)
    return float((np.abs(a - b) / (1 + np.abs(b))).max())


def model() -> tuple[Any, Any, Any]:
    """Moves, rewards and a logger's law of a random world without ends, each with one cell in front."""
    world = garnet(states=STATES, actions=ACTIONS, discount=DISCOUNT, seed=3)
    moves_SAS, reward_SA = exact_model(world)
    moves_SAS = moves_SAS / moves_SAS.sum(-1, keepdims=True).clip(1e-300)
    mu_SA = np.random.default_rng(0).dirichlet(np.ones(ACTIONS), STATES)
    return moves_SAS[None], reward_SA[None], mu_SA[None]


def expectiles() -> float:
    """`tabular.expectiles` beside scipy's weighted expectile."""
    from scipy.stats import expectile

    rng = np.random.default_rng(0)
    value_NK, mass_NK = rng.normal(size=(20, 7)), rng.dirichlet(np.ones(7), 20)
    theirs = [expectile(x, TAU, weights=w) for x, w in zip(value_NK, mass_NK, strict=True)]
    return far(tabular_offline.expectiles(value_NK, mass_NK, TAU), theirs)


def lyapunov() -> float:
    """Costs of stable gains, from a Kronecker system, beside scipy's discrete Lyapunov equation."""
    from scipy.linalg import solve_discrete_lyapunov

    mass, rng = point_mass(axes=2), np.random.default_rng(0)
    gains = mass.optimal_gain() + 0.05 * rng.normal(size=(10, *mass.optimal_gain().shape))
    theirs = [solve_discrete_lyapunov(np.sqrt(mass.discount) * (mass.a_DD - mass.b_DU @ k).T,
                                      mass.state_cost_DD + k.T @ mass.action_cost_UU @ k)
              for k in gains]  # fmt: skip
    return far(mass.cost_matrix(gains), theirs)


def linear_program() -> float:
    """Fitted Q beside the linear program min sum V, V >= r + discount P V, by scipy's linprog."""
    from scipy.optimize import linprog

    moves, reward, _ = model()
    rows = DISCOUNT * moves[0].reshape(-1, STATES) - np.repeat(np.eye(STATES), ACTIONS, axis=0)
    found = linprog(np.ones(STATES), A_ub=rows, b_ub=-reward[0].ravel(), bounds=(None, None))
    return far(tabular_offline.fitted_q(moves, reward, DISCOUNT)[0].max(-1), found.x)


def policy_iteration() -> float:
    """Fitted Q beside pymdptoolbox's policy iteration."""
    from mdptoolbox.mdp import PolicyIteration

    moves, reward, _ = model()
    solver = PolicyIteration(np.moveaxis(moves[0], 1, 0), reward[0], DISCOUNT)
    solver.run()
    return far(tabular_offline.fitted_q(moves, reward, DISCOUNT)[0].max(-1), solver.V)


def every_pair() -> tuple[Any, Any, Any]:
    """State, action and a torch batch that holds every (state, action, successor) of the model once."""
    import torch

    s, a, t = (x.ravel() for x in np.indices((STATES, ACTIONS, STATES)))
    reward_SA = model()[1][0]
    states = torch.as_tensor(np.eye(STATES)[s])
    batch = SimpleNamespace(
        observations=states, actions=torch.as_tensor(a[:, None]),
        rewards=torch.as_tensor(reward_SA[s, a][:, None]),
        next_observations=torch.as_tensor(np.eye(STATES)[t]),
        intervals=torch.ones(len(s), 1, dtype=torch.float64), terminals=torch.zeros(len(s), 1),
    )  # fmt: skip
    return (s, a, t), reward_SA, batch


def iql() -> float:
    """Gradients of d3rlpy's two IQL losses, by the laws of the model, at our fixed point, and its weights."""
    import torch
    from d3rlpy.algos.qlearning.torch.iql_impl import IQLImpl

    moves, reward, mu = model()
    q_RSA, v_RS = tabular_offline.iql(moves, reward, mu, DISCOUNT, TAU)
    (s, a, t), _, batch = every_pair()
    q_SA = torch.tensor(q_RSA[0], requires_grad=True)
    value_S = torch.tensor(v_RS[0], requires_grad=True)
    look = lambda obs, act: (obs @ q_SA).gather(1, act)  # noqa: E731
    error = lambda **k: (  # noqa: E731  d3rlpy's own squared error, kept by row
        (
            k["rewards"]
            + k["gamma"] * (1 - k["terminals"]) * k["target"]
            - look(k["observations"], k["actions"])
        )
        ** 2
    )
    law = torch.as_tensor((mu[0][s, a] * moves[0][s, a, t])[:, None])
    self = SimpleNamespace(
        _modules=SimpleNamespace(value_func=lambda obs: obs @ value_S[:, None]),
        _targ_q_func_forwarder=SimpleNamespace(compute_expected_q=lambda o, x, how: look(o, x)),
        _q_func_forwarder=SimpleNamespace(compute_error=error),
        _expectile=TAU, _weight_temp=BETA, _max_weight=np.inf, _gamma=DISCOUNT,
    )  # fmt: skip
    target = IQLImpl.compute_target(self, batch)
    # A batch of one row at a time gives each row's loss, which counts as often as the law says.
    rows = [SimpleNamespace(**{k: x[i : i + 1] for k, x in vars(batch).items()}) for i in range(len(s))]
    value_loss = sum(p * IQLImpl.compute_value_loss(self, x) for p, x in zip(law[:, 0], rows, strict=True))
    self.compute_value_loss = lambda _: torch.zeros(())
    q_loss = (law * IQLImpl.compute_critic_loss(self, batch, target).q_loss).sum()
    by_v, by_q = torch.autograd.grad(value_loss, value_S)[0], torch.autograd.grad(q_loss, q_SA)[0]
    weight = IQLImpl._compute_weight(self, batch).detach().numpy().reshape(STATES, ACTIONS, STATES)[..., 0]
    theirs = mu[0] * weight / (mu[0] * weight).sum(-1, keepdims=True)
    ours = tabular_offline.awr(mu, q_RSA - v_RS[..., None], BETA)[0]
    return max(float(by_v.abs().max()), float(by_q.abs().max()), far(ours, theirs))


def run_of() -> tuple[Any, Any, Any]:
    """A run with critics, slow actor and targets apart, and rewards and next states of 50 steps.

    Actions stay inside [-1, 1], where the libraries' clamp does nothing.
    """
    rng, mass = np.random.default_rng(1), point_mass(noise_std=0.1)
    run = control._Run(mass, np.arange(1, dtype=np.uint64), control.Settings())
    run.target_R2F = rng.normal(size=run.target_R2F.shape)
    run.gain_RUD, run.slow_RUD = 0.1 * rng.normal(size=(2, 1, 1, 2))
    return run, rng.normal(size=(1, 50)), 0.3 * rng.normal(size=(1, 50, 2))


def critics(run: Any) -> Any:
    """The run's two target critics as a function of torch tensors, [N, 1] each."""
    import torch

    def look(x: Any, u: Any) -> tuple[Any, Any]:
        phi = control.quadratic_features(x.numpy(), u.numpy())
        return tuple(torch.as_tensor(phi @ w)[:, None] for w in run.target_R2F[0])  # type: ignore[return-value]

    return look


def d3rlpy_td3() -> float:
    """`compute_target` of d3rlpy's TD3, its noise in place of ours."""
    import torch
    from d3rlpy.algos.qlearning.torch.td3_impl import TD3Impl

    run, reward, following = run_of()
    torch.manual_seed(0)
    noise = torch.randn(50, 1, dtype=torch.float64)
    act = lambda x: -x @ torch.as_tensor(run.slow_RUD[0].T)  # noqa: E731
    torch_randn, look = torch.randn, critics(run)
    self = SimpleNamespace(
        _modules=SimpleNamespace(targ_policy=lambda x: SimpleNamespace(mu=act(x), squashed_mu=act(x))),
        _target_smoothing_sigma=run.set.smoothing, _target_smoothing_clip=run.set.smoothing_clip,
        _targ_q_func_forwarder=SimpleNamespace(
            compute_target=lambda x, u, reduction: torch.stack(look(x, u)).min(0).values
        ),
    )  # fmt: skip
    batch = SimpleNamespace(next_observations=torch.as_tensor(following[0]), device="cpu")
    try:
        torch.randn = lambda *_, **__: noise
        worth = TD3Impl.compute_target(self, batch).numpy()[:, 0]
    finally:
        torch.randn = torch_randn
    return far(run.aims(reward, following, noise.numpy()[None])[0], reward[0] + run.world.discount * worth)


def stable_baselines() -> float:
    """Targets that Stable-Baselines3's train() regresses on, read from its critics' gradients."""
    import torch
    from stable_baselines3 import TD3

    run, reward, following = run_of()
    pair = [torch.zeros(50, 1, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    look = critics(run)
    rows = SimpleNamespace(
        observations=torch.as_tensor(following[0]), next_observations=torch.as_tensor(following[0]),
        actions=torch.zeros(50, 1, dtype=torch.float64), rewards=torch.as_tensor(reward[0][:, None]),
        dones=torch.zeros(50, 1, dtype=torch.float64), discounts=None,
    )  # fmt: skip

    taken: list[Any] = []  # what the critic's step would descend

    def critic(*_: Any) -> tuple[Any, Any]:
        return tuple(pair)  # type: ignore[return-value]

    def idle(step: Callable[[], None] = lambda: None) -> Any:
        return SimpleNamespace(zero_grad=lambda: None, step=step)

    critic.optimizer = idle(lambda: taken.append(pair[0].grad.clone()))  # type: ignore[attr-defined]
    for each in (critic, look):
        each.parameters = lambda: ()
    self = SimpleNamespace(
        policy=SimpleNamespace(set_training_mode=lambda _: None), _update_learning_rate=lambda _: None,
        replay_buffer=SimpleNamespace(sample=lambda *_, **__: rows), _vec_normalize_env=None,
        gamma=run.world.discount, logger=SimpleNamespace(record=lambda *_, **__: None), _n_updates=0,
        critic=critic, policy_delay=9, critic_target=look,
        target_policy_noise=run.set.smoothing, target_noise_clip=run.set.smoothing_clip,
        actor=SimpleNamespace(optimizer=idle()),
        actor_target=lambda x: -x @ torch.as_tensor(run.slow_RUD[0].T),
    )  # fmt: skip
    torch.manual_seed(0)
    made = torch.zeros(50, 1, dtype=torch.float64).normal_(0, run.set.smoothing) / run.set.smoothing
    torch.manual_seed(0)
    TD3.train(self, 1, 50)
    theirs = -taken[0].numpy()[:, 0] * 50 / 2  # d/dq of mean (q - y)^2 at q = 0
    return far(run.aims(reward, following, made.numpy()[None])[0], theirs)


def cleanrl_td3() -> float:
    """Target lines of cleanrl's single file, run as they stand: importing the file would train."""
    import torch

    path = Path(find_spec("cleanrl").submodule_search_locations[0]) / "td3_continuous_action.py"  # type: ignore[union-attr,index]
    text = path.read_text()
    begin, end = text.index("            clipped_noise = ("), text.index("        qf1_a_values")
    run, reward, following = run_of()
    torch.manual_seed(0)
    one = torch.randn(1, dtype=torch.float32)  # the file draws one noise for the whole batch
    torch.manual_seed(0)
    look, slow = critics(run), torch.as_tensor(run.slow_RUD[0].T)
    names = {
        "torch": torch, "action": np.zeros(1), "device": "cpu", "s_dones": np.zeros(50),
        "s_rewards": reward[0], "s_next_obses": torch.as_tensor(following[0]),
        "args": SimpleNamespace(policy_noise=0.1, noise_clip=0.2, gamma=run.world.discount),
        "env": SimpleNamespace(action_space=SimpleNamespace(low=np.array([-1.0]), high=np.array([1.0]))),
        "target_actor": SimpleNamespace(forward=lambda x, d: -x @ slow),
        "qf1_target": SimpleNamespace(forward=lambda x, u, d: look(x, u)[0]),
        "qf2_target": SimpleNamespace(forward=lambda x, u, d: look(x, u)[1]),
    }  # fmt: skip
    exec(textwrap.dedent(text[begin:end].expandtabs(4)), names)
    noise = np.full((1, 50, 1), float(one[0]))
    return far(run.aims(reward, following, noise)[0], names["next_q_value"].numpy())  # type: ignore[attr-defined]


def prdc() -> float:
    """Distances of PRDC's penalty in d3rlpy, and in what its neighbor search finds."""
    import torch
    from d3rlpy.algos.qlearning.torch.prdc_impl import PRDCImpl
    from sklearn.neighbors import NearestNeighbors

    rng, weight = np.random.default_rng(0), 2.0
    x, a = rng.random((1, 200)), rng.normal(size=(1, 200))
    grid_s, grid_a = np.linspace(0, 1, 5), np.linspace(-2, 2, 9)
    near = one_continuous_action.nearest_distance(x, a, grid_s, grid_a, weight)[1]
    search = NearestNeighbors(n_neighbors=1).fit(np.stack([weight * x[0], a[0]], axis=-1))
    s, u = (torch.as_tensor(g.ravel()[:, None]) for g in np.meshgrid(grid_s, grid_a, indexing="ij"))
    self = SimpleNamespace(
        _q_func_forwarder=SimpleNamespace(compute_expected_q=lambda *_: torch.ones(1, 45, 1)),
        _alpha=1.0, _beta=weight, _nbsr=search, device="cpu", action_size=1,
    )  # fmt: skip
    gaps = []
    for i in range(45):
        row = SimpleNamespace(observations=s[i : i + 1])
        found = PRDCImpl.compute_actor_loss(self, row, SimpleNamespace(squashed_mu=u[i : i + 1]))
        gaps.append(far((near.ravel()[i] - float(u[i])) ** 2, float(found.dc_loss)))
    return max(gaps)


def score_tables() -> float:
    """IPS and doubly robust values of three policies beside obp's estimators."""
    from obp.ope import DoublyRobust, InverseProbabilityWeighting

    from envs.logged_bandit import logged_bandit

    bandit = logged_bandit(contexts=5, arms=4, seed=0)
    data = bandit.log(np.arange(1, dtype=np.uint64), 400)
    context, action = data.context_RN[0], data.action_RN[0]
    model_RSA = logged_policies.mean_model(data, 5, 4)
    gaps = []
    for pi_SA in np.random.default_rng(0).dirichlet(np.ones(4), (3, 5)):
        given = {
            "reward": data.reward_RN[0], "action": action, "pscore": data.propensity_RN[0],
            "action_dist": pi_SA[context][..., None], "position": np.zeros(400, int),
            "estimated_rewards_by_reg_model": model_RSA[0][context][..., None],
        }  # fmt: skip
        value = lambda table, pi=pi_SA: float((table[0] * pi).sum())  # noqa: E731
        ips, dr = InverseProbabilityWeighting(), DoublyRobust()
        gaps.append(far(value(logged_policies.score_table(data, 5, 4)), ips.estimate_policy_value(**given)))
        doubly = logged_policies.score_table(data, 5, 4, model_RSA=model_RSA)
        gaps.append(far(value(doubly), dr.estimate_policy_value(**given)))
    return max(gaps)


SINGLE = 1e-6
"""Of libraries that compute a part in single precision."""
COMPARISONS = (
    Comparison("scipy", "scipy", "expectiles", 1e-8, expectiles),
    Comparison("scipy", "scipy", "fitted Q, linear program", 1e-8, linear_program),
    Comparison("scipy", "scipy", "cost of a gain, Lyapunov", 1e-10, lyapunov),
    Comparison("pymdptoolbox", "mdptoolbox", "fitted Q, policy iteration", 1e-10, policy_iteration),
    Comparison("d3rlpy", "d3rlpy", "IQL: losses and weights", SINGLE, iql),
    Comparison("d3rlpy", "d3rlpy", "TD3 target", 1e-12, d3rlpy_td3),
    Comparison("d3rlpy", "d3rlpy", "PRDC penalty", 1e-12, prdc),
    Comparison("stable-baselines3", "stable_baselines3", "TD3 target", 1e-12, stable_baselines),
    Comparison("cleanrl", "cleanrl", "TD3 target", SINGLE, cleanrl_td3),
    Comparison("obp", "obp", "IPS, doubly robust", 1e-12, score_tables),
)


def missing(each: Comparison) -> str | None:
    """Why the library cannot be used here, None if it can."""
    try:
        with warnings.catch_warnings(action="ignore"):
            importlib.import_module(each.module)
    except Exception as error:  # a library may fail to import in any way
        return f"{each.library} cannot be imported: {error}"
    return None


def main() -> int:
    """Print the gaps; exit status 1 when one is too large."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer", help="folder that the libraries are installed in")
    given = parser.parse_args()
    sys.path += [given.peer] if given.peer else []
    late = False
    for each in COMPARISONS:
        if reason := missing(each):
            print(f"{each.library:18} {each.what:28} {reason}")
            continue
        gap = each.gap()
        late |= not gap <= each.most
        version = importlib.metadata.version(each.library)
        print(f"{each.library:18} {version:8} {each.what:28} gap {gap:.1e}, at most {each.most:.0e}")
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
