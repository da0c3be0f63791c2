"""Base models in a folder: the same bits as those made in place, whoever made them, and never a wrong one."""

import itertools
from dataclasses import replace

import pytest
import torch

from testbed.config.run import Run
from testbed.policies.toy.toy_transformer import ToyTransformer
from testbed.policies.warm_start import warm_start
from testbed.worlds import base_models
from testbed.worlds.build_world import build_world
from testbed.worlds.tokens import build_token_policy

RUN = Run(
    task="running-sum", task_args=(("digits", 2), ("modulus", 3)), policy="toy",
    policy_args=(("heads", 2), ("width", 16)), warm_start_steps=4,
)  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(base_models.FOLDER, str(tmp_path / "base"))
    return tmp_path / "base"


def start(*seeds, run=RUN):
    return build_world(tuple(replace(run, seed=seed) for seed in seeds)).initial()


def made_in_place(monkeypatch, *seeds, run=RUN):
    with monkeypatch.context() as environment:
        environment.setenv(base_models.FOLDER, "off")
        return start(*seeds, run=run)


def test_weights_are_those_made_in_place_whatever_lay_in_the_folder(folder, monkeypatch):
    expected = made_in_place(monkeypatch, 0, 1, 2, 1)
    start(1)
    assert len(list(folder.iterdir())) == 1
    assert torch.equal(start(0, 1, 2, 1), expected), "one row read, two made"
    assert len(list(folder.iterdir())) == 3
    monkeypatch.setattr("testbed.policies.warm_start.warm_start", None)
    assert torch.equal(start(2, 1), expected[[2, 1]]), "all read"


SHAPES = (
    {"policy_args": (("width", 64), ("layers", 4))},
    {"policy_args": (("width", 24), ("layers", 1), ("heads", 3))},
    {"policy_args": (("layers", 1), ("width", 128)), "task_args": (("digits", 24),)},
)


@pytest.mark.slow
@pytest.mark.parametrize("changes", SHAPES)
def test_a_row_has_the_same_bits_in_every_stack(changes):
    task, policy = build_token_policy(replace(RUN, **changes))
    stack = warm_start(policy, task, range(4), steps=3)
    for seeds in ((0,), (3, 1), (0, 1, 2)):
        assert torch.equal(warm_start(policy, task, seeds, steps=3), stack[list(seeds)]), seeds


def test_damaged_files_are_made_again(folder):
    expected = start(3)
    (path,) = folder.iterdir()
    content = path.read_bytes()
    for damaged in (b"", content[:-4], content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(damaged)
        assert torch.equal(start(3), expected)
        assert path.read_bytes() == content


def test_a_folder_that_cannot_be_written_changes_nothing(tmp_path, monkeypatch):
    expected = made_in_place(monkeypatch, 0, 1)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(base_models.FOLDER, str(tmp_path / "file" / "base"))
    assert torch.equal(start(0, 1), expected)


def test_everything_that_decides_a_row_is_in_its_name(folder):
    changes = (
        {}, {"seed": 1}, {"warm_start_steps": 5}, {"teacher_noise": 0.3},
        {"task_args": (("digits", 2), ("modulus", 4))}, {"policy_args": (("heads", 4), ("width", 16))},
        {"policy_args": (("heads", 2), ("temperature", 0.5), ("width", 16))},
    )  # fmt: skip
    runs = [replace(RUN, **change) for change in changes]
    rows = [start(run.seed, run=run)[0] for run in runs]
    assert len(list(folder.iterdir())) == len(runs)
    assert not any(a.shape == b.shape and torch.equal(a, b) for a, b in itertools.combinations(rows, 2))


def test_other_code_and_other_packages_train_anew(folder, monkeypatch):
    task, policy = build_token_policy(RUN)
    name = base_models.name_of(policy, task, (), 0)
    for part in ("machine", "source_digest"):
        with monkeypatch.context() as changed:
            changed.setattr(base_models, part, lambda *_: ("other",))
            assert base_models.name_of(policy, task, (), 0) != name


def test_the_task_s_own_file_counts_as_code():
    from envs.tokens.length import Length
    from envs.tokens.running_sum import RunningSum

    class Mine(RunningSum):
        pass

    assert base_models.source_digest(Mine) != base_models.source_digest(RunningSum)
    assert base_models.source_digest(Length) == base_models.source_digest(RunningSum), "all of envs.tokens"


def test_only_what_depends_on_its_seed_alone_is_kept():
    task, policy = build_token_policy(RUN)
    assert base_models.keepable(policy)
    assert not base_models.keepable(policy.with_rounding(lambda x_RDM: x_RDM))
    assert not base_models.keepable(policy.with_hidden(lambda _, x_RDM: x_RDM))
    assert not base_models.keepable(ToyTransformer(task, device="meta"))
    perturbed = replace(RUN, policy_args=(*RUN.policy_args, ("perturb", 0.1)))
    assert not base_models.keepable(build_token_policy(perturbed)[1])
    torch.set_num_threads(2)
    assert not base_models.keepable(policy)


def test_the_folder_is_the_user_s_unless_another_is_named(monkeypatch):
    monkeypatch.delenv(base_models.FOLDER)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert str(base_models.folder()) == "/somewhere/cache/off-policy-testbed/base-models"
    monkeypatch.setenv(base_models.FOLDER, "/elsewhere")
    assert str(base_models.folder()) == "/elsewhere"
    monkeypatch.setenv(base_models.FOLDER, "off")
    assert base_models.folder() is None
