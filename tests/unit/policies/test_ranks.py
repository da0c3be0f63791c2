"""Several processes with one batch: each runs its share, and all see what one process alone would see."""

import dataclasses
import os
import subprocess
import sys
import threading
from copy import deepcopy

import numpy as np
import pytest
import torch
import torch.distributed as dist
from support import tiny_models
from support.doc_blocks import blocks
from support.import_graph import ROOT
from support.refusals import refuses
from support.small_runs import SUMS

from envs.tokens.running_sum import RunningSum
from testbed.config.pack import Pack
from testbed.diagnostics.ratio_metrics import ratio_metrics
from testbed.execution.memory import needed
from testbed.execution.rank_processes import _Follower
from testbed.execution.runner import run_sweep
from testbed.losses.aggregate import aggregate
from testbed.objectives import objective
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.options import LOGP_TOLERANCE
from testbed.policies.hf.shared_batches import WEIGHT_TOLERANCE, InRanks, Ranks, checked_ranks
from testbed.policies.hf.tiny_model import Lesson, train_base
from testbed.results.store import read
from testbed.training.checkpoint import Checkpoints
from testbed.training.loop import train

TASK = tiny_models.Echo()
N, GROUP = 5, 4
B, T = N * GROUP, TASK.response_length
BATCH_WIDE = sorted(name for name in objective if objective[name].promises["scope"] in ("batch", "group"))


class Threads:
    """Ranks that are threads of this process: `total` adds up what all of them bring."""

    def __init__(self, ranks):
        self.ranks, self.barrier = ranks, threading.Barrier(ranks, timeout=60)
        self.brought = [None] * ranks

    def one(self, rank):
        made = object.__new__(Ranks)
        made.rank, made.ranks, made.device = rank, self.ranks, torch.device("cpu")

        def total(value):
            self.brought[rank] = value.long() if value.dtype == torch.bool else value
            self.barrier.wait()
            whole = sum(self.brought[1:], start=self.brought[0])
            self.barrier.wait()
            return whole.to(value.dtype)

        made.total = total
        return made

    def run(self, policy, function):
        """Return function(policy in ranks) of every rank; a module serves one thread at a time."""
        found, policies = [None] * self.ranks, [deepcopy(policy) for _ in range(self.ranks)]

        def work(rank):
            try:
                found[rank] = function(InRanks(policies[rank], self.one(rank)))
            except BaseException:
                self.barrier.abort()
                raise

        workers = [threading.Thread(target=work, args=(rank,)) for rank in range(self.ranks)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("m") / "gpt2", tiny_models.CONFIGS["gpt2"]())


@pytest.fixture(scope="module")
def policy(folder):
    return HuggingFacePolicy(folder, TASK, dtype="float64", micro_tokens=40)


@pytest.fixture(scope="module")
def rollout(policy):
    return tiny_models.moved_rollout(policy, N, GROUP)


def gradients(policy, rollout, names):
    """The gradient of every objective, and the metrics of the ratios."""
    theta_RP, prompt_RNQ, token_RBT, batch = rollout
    found = {}
    for name in names:
        leaf_RP = theta_RP.clone().requires_grad_()
        logp_RBT = policy.logp(leaf_RP, prompt_RNQ, token_RBT, batch.mask_BT)
        loss = aggregate(objective[name].function(logp_RBT, batch), batch.mask_BT, "token_mean")
        found[name] = torch.autograd.grad(loss.sum(), leaf_RP)[0]
    return found, ratio_metrics(logp_RBT.detach(), batch)


@pytest.mark.parametrize(
    ("ranks", "names"), [(2, ["m2po", "bapo"]), pytest.param(7, BATCH_WIDE, marks=pytest.mark.slow)]
)
def test_every_objective_and_statistic_of_the_batch_is_that_of_one_process(policy, rollout, ranks, names):
    expected, statistics = gradients(policy, rollout, names)
    found = Threads(ranks).run(policy, lambda shared: gradients(shared, rollout, names))
    for grads, metrics in found:
        for name in names:
            most = WEIGHT_TOLERANCE[torch.float64] * float(expected[name].abs().max())
            torch.testing.assert_close(grads[name], expected[name], rtol=0, atol=most)
            assert torch.equal(grads[name], found[0][0][name]), "ranks drift apart"
        for name, value in metrics.items():
            torch.testing.assert_close(value, statistics[name], rtol=1e-9, atol=1e-12)
    assert max(float(grad.abs().max()) for grad in expected.values()) > 1e-4


@pytest.mark.parametrize("ranks", [2, 7])
def test_what_ranks_write_and_read_is_what_one_process_does(policy, rollout, ranks):
    theta_RP, prompt_RNQ, token_RBT, batch = rollout
    uniform_RBT = np.random.default_rng(3).random((1, B, T))
    versions_RWP = torch.stack([theta_RP, theta_RP + 0.05], dim=1)
    version_RBT = (torch.arange(T) > torch.arange(B)[:, None] % T).long()[None]

    def ask(policy):
        drawn = policy.sample(theta_RP, prompt_RNQ, GROUP, uniform_RBT)
        flying = policy.sample_in_flight(versions_RWP, version_RBT, prompt_RNQ, GROUP, uniform_RBT)
        read = policy.logp_in_flight(versions_RWP, version_RBT, prompt_RNQ, *flying[:2])
        told = [
            f(theta_RP, prompt_RNQ, token_RBT, batch.mask_BT) for f in (policy.entropy, policy.score_norm)
        ]
        cold = {"distribution": lambda logp, t: (2 * logp).log_softmax(-1)}
        law = policy.sample(theta_RP, prompt_RNQ, GROUP, uniform_RBT, **cold)
        both = policy.sample_in_flight(versions_RWP, version_RBT, prompt_RNQ, GROUP, uniform_RBT, **cold)
        return [*drawn, *flying, read, *told, *law, *both]

    expected = ask(policy)
    for answers in Threads(ranks).run(policy, ask):
        for value, wanted in zip(answers, expected, strict=True):
            torch.testing.assert_close(value, wanted, rtol=0, atol=LOGP_TOLERANCE[torch.float64])


def test_each_rank_computes_its_share_alone(policy, rollout, monkeypatch):
    theta_RP, prompt_RNQ, token_RBT, batch = rollout
    seen, part = [], HuggingFacePolicy._part

    def spy(self, rows, theta_P, prompt_NQ, token_BT, *rest):
        seen.append(len(token_BT))
        return part(self, rows, theta_P, prompt_NQ, token_BT, *rest)

    monkeypatch.setattr(HuggingFacePolicy, "_part", spy)
    Threads(2).run(policy, lambda shared: shared.logp(theta_RP, prompt_RNQ, token_RBT, batch.mask_BT))
    assert sum(seen) == B


def test_a_judge_is_asked_once_and_all_ranks_hear_the_same(policy):
    asked = []
    judge = lambda: asked.append(1) or [0.1, 1.0, 0.0]  # noqa: E731
    found = Threads(3).run(policy, lambda shared: shared.ranks.of_first(judge, 3).tolist())
    assert found == [[0.1, 1.0, 0.0]] * 3
    assert asked == [1]


@pytest.mark.slow
def test_the_script_of_the_guide_trains_in_two_processes(tmp_path):
    guide = blocks(ROOT / "docs" / "howto" / "own-model.md")
    script, started = [block for block in guide if "test_ranks.py" in block.words]
    train_base(
        tmp_path / "out" / "base", RunningSum(digits=2), "llama", "char", width=16, layers=1, lesson=Lesson(0)
    )
    [(torchrun, *words)] = started.commands()
    assert torchrun == "torchrun"
    (tmp_path / words[-1]).write_text(script.text)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [said] = [line for line in done.stdout.splitlines() if line.startswith("accuracy: ")]  # of one process
    assert len(said.split()) == 4


@pytest.mark.parametrize("given", [0, 2.0, True, "2"])
def test_ranks_that_are_no_count_are_refused(given):
    assert refuses("", checked_ranks, given) == (
        f"ranks is {given!r}, expected how many processes share every batch, at least 1."
    )
    assert checked_ranks(1) == 1


def test_processes_meet_as_they_were_started_or_are_told_how(monkeypatch):
    met, devices, gpus = [], [], []
    monkeypatch.setattr(dist, "is_initialized", lambda: len(met) > 3)
    monkeypatch.setattr(dist, "init_process_group", met.append)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus[0])
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)
    for world, said in ((None, "one"), ("3", "3")):
        monkeypatch.delenv("WORLD_SIZE", raising=False) if world is None else monkeypatch.setenv(
            "WORLD_SIZE", world
        )
        assert refuses("", Ranks, 2, torch.device("cpu")) == (
            f"ranks is 2, but {said} process was started. Sweeps of this bench start the others "
            f"themselves; start "
            "your script with `torchrun --nproc-per-node 2`, or on GPUs with `accelerate launch "
            "--num_processes 2`."
        )
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "5")
    for device, gpus[:] in (("cpu", [4]), ("cuda", [2]), ("cuda", [1]), ("cuda", [0])):
        made = Ranks(2, torch.device(device))
    assert (met, devices) == (["gloo", "nccl", "gloo", "gloo"], [1, 0])
    assert (made.rank, made.ranks, made.device.type) == (1, 2, "cuda")
    refuses("^ranks is 3, but 2 processes were started; make them equal.$", Ranks, 3, torch.device("cpu"))
    monkeypatch.setattr(dist, "all_reduce", lambda x: x.mul_(2))
    made.device = torch.device("cpu")
    for value in (torch.tensor([True, False]), torch.tensor([[1.5, 2], [3, 4]]).T, torch.tensor([3])):
        kept = value.clone()
        assert torch.equal(made.total(value), value if value.dtype == torch.bool else 2 * value)
        assert torch.equal(value, kept)
    made.ranks = 3
    for made.rank, wanted in (
        (0, [(0, 0), (0, 1), (0, 2)]),
        (1, [(0, 1), (1, 3), (2, 4)]),
        (2, [(1, 2), (3, 5), (4, 7)]),
    ):
        assert [(s.start, s.stop) for s in map(made.share, (2, 5, 7))] == wanted


def test_the_first_process_writes_the_checkpoints_of_all(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    Checkpoints(tmp_path / "c.safetensors", 1).save(None, None, 1)
    assert list(tmp_path.iterdir()) == []


def test_every_process_of_a_pack_on_cpus_needs_its_memory(folder):
    def need(**given):
        run = dataclasses.replace(CELL, model=str(folder), policy_args=tuple(given.items()))
        return needed(Pack("p", 0, (run,)))

    one, three = need(), need(ranks=3)
    assert (three.kept, three.replicas) == (3 * one.kept, 3 * one.replicas)
    assert three.activations == one.activations


CELL = dataclasses.replace(SUMS, policy="hf", policy_args=(), prompts=5, steps=3, learning_rate=1e-3, lag=1)
SAME = ("actor/grad_norm", "rollout_corr/ess_kish_sequence_raw", "reward/mean", "accuracy")


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    folder, task = tmp_path_factory.mktemp("real") / "m", RunningSum(digits=2, modulus=2)
    train_base(folder, task, width=16, layers=1, lesson=Lesson(steps=30))
    return dataclasses.replace(CELL, model=str(folder))


def in_ranks(cell, folder):
    """The table of a cell whose first rank is this process."""
    status = run_sweep([cell], folder, workers=0)
    assert status.done == 1, status.failures[0].message
    return read(folder)


@pytest.mark.slow
def test_two_processes_train_what_one_does(cell, tmp_path, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    float64 = (("dtype", "float64"),)
    m2po = dataclasses.replace(cell, recipe="m2po", policy_args=float64)
    alone = train(m2po)
    shared = in_ranks(dataclasses.replace(m2po, policy_args=(*float64, ("ranks", 2))), tmp_path / "s")
    for name in SAME:
        np.testing.assert_allclose(shared[name].to_numpy(), alone[name], rtol=1e-8, atol=1e-12)
    assert np.min(alone["actor/grad_norm"]) > 1e-4
    assert shared["actor/grad_norm"].to_numpy().tolist() != list(alone["actor/grad_norm"]), "one did it all"
    assert "RANK" not in os.environ


TROUBLE = """
import os
from envs.tokens.running_sum import RunningSum

class Mine(RunningSum):
    def prompts(self, rng, n):
        if os.environ.get("RANK") == "1":
            raise ValueError("this disk has fallen off the bus")
        return super().prompts(rng, n)
"""


def test_of_what_a_process_says_the_last_line_is_told(tmp_path):
    script = "import sys; sys.stderr.write('Traceback\\nValueError: off the bus\\n'); sys.exit(1)"
    with open(tmp_path / "words", "wb+") as words:
        process = subprocess.Popen([sys.executable, "-S", "-c", script], stderr=words)
        assert _Follower(1, process, words).said() == "rank 1: ValueError: off the bus"


@pytest.mark.slow
def test_what_another_process_dies_of_is_told(cell, tmp_path):
    (tmp_path / "mine.py").write_text(TROUBLE)
    task = f"{tmp_path / 'mine.py'}:Mine"
    with pytest.raises(AssertionError, match="Another process of this pack ended. rank 1: .*off the bus"):
        in_ranks(dataclasses.replace(cell, task=task, policy_args=(("ranks", 2),)), tmp_path / "s")
