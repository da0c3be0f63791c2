"""Policies, weights and prompts that the tests of engine mismatch share."""

import numpy as np
import torch
from torch import Tensor

from envs.catalog import token_task
from envs.streams import uniforms
from envs.tokens.token_tree import tree
from testbed import rng
from testbed.mismatch import engine
from testbed.mismatch.behavior import Behavior
from testbed.policies.tabular_policy import TabularPolicy
from testbed.policies.toy.toy_transformer import ToyTransformer

SEEDS = (3, 8)
TASK = token_task("running-sum", {"digits": 3, "modulus": 3})
WITH_END = token_task("length", {"digits": 2, "modulus": 3, "limit": 3})
WORLD = tree(task="length", prompts=2)
TABLE = TabularPolicy(WORLD.states, WORLD.actions)
LAYERS = 4
VISIBLE = {
    "top-p": {"p": 0.6}, "top-k": {"k": 2}, "temperature": {"temperature": 1.5},
    "logit-noise": {"sigma": 0.5}, "layer-noise": {"sigma": 0.1},
}  # fmt: skip
"""Hyperparameters at which small vocabularies notice the engine."""


def toy(task=TASK, dtype=torch.float32, **sizes) -> ToyTransformer:
    return ToyTransformer(task, width=8, heads=2, layers=LAYERS, dtype=dtype, **sizes)


def toy_weights(policy: ToyTransformer, seeds=SEEDS) -> Tensor:
    """Initial weights, enlarged so that laws are far from uniform."""
    return 3 * policy.initial(seeds)


def table_weights(scale: float = 1.5) -> Tensor:
    draws = np.random.default_rng(7).standard_normal((len(SEEDS), TABLE.parameters))
    return torch.from_numpy(scale * draws)


def table_behavior(name: str, **hyper) -> Behavior:
    return Behavior(TABLE, engine(name, **{**VISIBLE.get(name, {}), **hyper}), SEEDS)


def table_pair(name: str, step: int = 0, **hyper) -> tuple[np.ndarray, np.ndarray]:
    """log pi and log mu of the two tables."""
    theta = table_weights()
    log_pi = TABLE.logits(theta).log_softmax(-1).numpy()
    return log_pi, table_behavior(name, **hyper).log_table(theta, step).numpy()


def drawn(policy: ToyTransformer, task, group: int = 16) -> tuple[Tensor, Tensor]:
    """Prompts and uniforms for two replicas."""
    prompt_NQ = task.prompts(np.random.default_rng(1), 2)
    prompt = torch.from_numpy(np.stack([prompt_NQ] * len(SEEDS)))
    uniform = uniforms(rng.keys(SEEDS, "test"), 0, 2 * group, task.response_length)
    return prompt, torch.from_numpy(uniform)
