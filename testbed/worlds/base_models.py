"""Train each base model once, and share the rows of `warm_start` in a folder across processes.

A row's name covers everything that determines its bits: the task with its arguments, the model, seed, steps
and noise, the source files that train it, the packages and the kind of CPU. You may delete rows at any time.
A damaged file is remade; if the folder is not writable, every pack trains its own rows.
"""

import contextlib
import hashlib
import inspect
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from envs.tokens.token_task import TokenTask
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.policies.policy import Policy
from testbed.policies.toy.layers import unrounded
from testbed.policies.toy.toy_transformer import ToyTransformer
from testbed.results import atomic_files, user_cache
from testbed.results.fingerprint import version_of

FOLDER = "TESTBED_BASE_MODELS"
"""Environment variable with the folder's name; "off" trains every base model in place."""
DIGEST = 64
"""Number of SHA-256 hexadecimal digits before a file's weights."""

Train = Callable[[Sequence[int]], Tensor]
"""(seeds) -> theta_RP, one trained row per seed."""


def folder() -> Path | None:
    """Return the folder of base models: $TESTBED_BASE_MODELS, or one in the user's cache; None if off."""
    given = os.environ.get(FOLDER, "")
    if given:
        return None if given == "off" else Path(given)
    return user_cache.place("base-models")


def shared(
    policy: Policy, task: TokenTask, made_of: Sequence[object], seeds: Sequence[int], train: Train
) -> Tensor:
    """Return train(seeds), theta_RP, reading rows from the folder and adding missing ones to it.

    Rows are stored singly: with one thread on the CPU a row has the same bits in any stack
    (tests/unit/worlds/test_base_models.py). Elsewhere nothing is stored, and train(seeds) is returned.

    Args:
        policy: the model that is trained.
        task: the training task; its class determines the source files that count.
        made_of: names and numbers, as `made_of` returns them.
        seeds: one per row.
        train: makes the rows of given seeds.
    """
    place = folder() if keepable(policy) else None
    if place is None:
        return train(seeds)
    names = {seed: name_of(policy, task, made_of, seed) for seed in seeds}
    rows = {seed: read(place / name, policy) for seed, name in names.items()}
    missing = [seed for seed, row in rows.items() if row is None]
    if missing:
        made = train(missing).detach()
        for seed, row_P in zip(missing, made, strict=True):
            rows[seed] = row_P
            keep(place / names[seed], row_P)
    return torch.stack([row_P for seed in seeds if (row_P := rows[seed]) is not None])


def keepable(policy: Policy) -> bool:
    """Return True if a row's bits depend on its seed alone: the plain toy model, one CPU thread."""
    if type(policy) is not ToyTransformer or policy.device.type != "cpu":
        return False
    plain = policy.hidden is None and policy.rounding is unrounded
    return plain and torch.get_num_threads() == 1


def made_of(run: Run) -> tuple[object, ...]:
    """Return everything that determines a row besides seed, policy, task class and code."""
    return run.task, run.task_args, run.warm_start_steps, run.teacher_noise


def name_of(policy: Policy, task: TokenTask, made_of: Sequence[object], seed: int) -> str:
    """Return the file name of a row, a digest of everything that determines its bits."""
    assert isinstance(policy, ToyTransformer)
    model = [vars(policy.shape), policy.heads, policy.temperature, str(policy.dtype)]
    about: list[Any] = [model, list(made_of), int(seed), source_digest(type(task)), machine()]
    text = json.dumps(about, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:40] + ".base"


@cache
def machine() -> tuple[str, ...]:
    """Return packages and the kind of CPU, which determine the order of sums."""
    backend, config = torch.backends.cpu.get_cpu_capability(), torch.__config__.show()
    kinds = [backend, sys.platform, platform.machine(), config]
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        kinds += [line.strip() for line in file if line.startswith("model name")][:1]
    return (np.__version__, torch.__version__, version_of("numba"), version_of("reasoning-gym"), *kinds)


@cache
def source_digest(task: type[TokenTask]) -> str:
    """Return a digest of the files that determine a base model: the toy policy, its training, the task's."""
    policies = Path(inspect.getfile(Policy)).parent
    files = {*policies.glob("*.py"), *(policies / "toy").glob("*.py"), policies.parent / "rng.py"}
    files |= set(Path(inspect.getfile(TokenTask)).parent.glob("*.py"))
    for kind in task.__mro__:
        with contextlib.suppress(TypeError, OSError):  # built in
            files.add(Path(inspect.getfile(kind)))
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def read(path: Path, policy: Policy) -> Tensor | None:
    """Return the row [P] in a file, None if it is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    weights = content[DIGEST:]
    whole = hashlib.sha256(weights).hexdigest().encode() == content[:DIGEST]
    if not whole or len(weights) != policy.parameters * policy.dtype.itemsize:
        return None
    return torch.frombuffer(bytearray(weights), dtype=policy.dtype)


def keep(path: Path, row_P: Tensor) -> None:
    """Write a row, whole or not at all; do nothing if the folder is not writable."""
    weights = row_P.contiguous().numpy().tobytes()
    with contextlib.suppress(OSError, UserError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.replace(path, hashlib.sha256(weights).hexdigest().encode() + weights, flush=False)
