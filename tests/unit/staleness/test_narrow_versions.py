"""Versions of a 16-bit model are kept in 16 bits; those a GPU has no room for in the machine's memory."""

import dataclasses

import numpy as np
import pytest
import torch
from support import tiny_models

from testbed.config.run import Run
from testbed.execution.memory import Need, Room, needed
from testbed.execution.packs import plan
from testbed.policies.hf.policy import HuggingFacePolicy
from testbed.staleness import storage
from testbed.staleness.versions import VersionBuffer
from testbed.worlds.generation import narrow_versions

TASK = tiny_models.Echo()
RUN = Run(policy="hf", policy_args=(("dtype", "bfloat16"),), model="m")


def test_a_narrow_version_generates_the_bits_of_the_wide_one_in_half_the_room(tmp_path):
    folder = tiny_models.write_model(tmp_path / "m", tiny_models.CONFIGS["llama"]())
    policy = HuggingFacePolicy(folder, TASK, dtype="bfloat16")
    theta_RP = policy.initial([0]) + 1e-3 * torch.randn((1, policy.parameters), generator=torch.Generator())
    wide = VersionBuffer(theta_RP, [2])
    narrow = VersionBuffer(theta_RP, [2], dtype=torch.bfloat16)
    assert narrow.slots_MP.nbytes == wide.slots_MP.nbytes / 2
    now_R1 = torch.zeros(1, 1, dtype=torch.int64)
    assert not torch.equal(narrow.read(now_R1), wide.read(now_R1))
    assert narrow.read(now_R1).dtype == torch.float32
    rng = np.random.default_rng(0)
    prompt_RNQ, uniform_RBT = torch.as_tensor(TASK.prompts(rng, 4))[None], rng.random((1, 8, 5))
    drawn = [
        policy.sample(buffer.read(now_R1)[:, 0], prompt_RNQ, 2, uniform_RBT) for buffer in (wide, narrow)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*drawn, strict=True))


def test_versions_are_narrow_only_where_nothing_else_rounds_them():
    assert narrow_versions(RUN) == torch.bfloat16
    for change in (
        {"policy_args": ()},
        {"policy_args": (("dtype", "bfloat16"), ("precision", "int8"))},
        {"mismatch": "int8"},
        {"policy": "toy"},
    ):
        assert narrow_versions(dataclasses.replace(RUN, **change)) is None
    assert narrow_versions(dataclasses.replace(RUN, mismatch="top-p")) == torch.bfloat16


def test_what_a_pack_needs_counts_narrow_versions_and_full_anchors(tmp_path):
    folder = tiny_models.write_model(tmp_path / "m", tiny_models.CONFIGS["llama"]())
    run = dataclasses.replace(RUN, model=str(folder), task="length", lag=9, steps=50)
    need = needed(plan([run])[0])
    assert need.kept == 10 * need.parameters * 2
    anchored = dataclasses.replace(run, recipe="decoupled", anchor="version", anchor_args=(("age", 3),))
    assert needed(plan([anchored])[0]).kept == (10 * 2 + 4 * 4) * need.parameters


def test_versions_that_a_gpu_has_no_room_for_lie_in_the_machine_s_memory(monkeypatch):
    room = {"meta": 1000, "cpu": 100_000}  # "meta" stands for a GPU
    monkeypatch.setattr(storage, "available", lambda device: room[device.type])
    like_RP = torch.empty(1, 100, device="meta")
    assert storage.allocate(1, like_RP, "1 version").device.type == "meta"
    assert storage.allocate(2, like_RP, "2 versions").device.type == "cpu"
    with pytest.raises(storage.UserError, match=r"need 78\.12 KiB, more than the 48\.83 KiB"):
        storage.allocate(200, like_RP, "200 versions")
    need = Need(parameters=100, itemsize=4, replicas=1, versions=60, optimizer=0, activations=0)
    assert not need.fits(Room(20_000))
    assert need.fits(Room(20_000, host=100_000))
