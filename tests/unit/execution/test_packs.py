"""Which cells run stacked, and how packs are dealt to shards and travel to workers."""

import json

import pytest

from testbed.config.pack import LARGEST, pack_id, restore
from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.execution.packs import STACKED, Shard, plan
from testbed.execution.worker import order

STALENESS = grid(Run(), recipe=["grpo", "m2po"], lag=[0, 4, 16], seed=range(50))


@pytest.mark.parametrize(
    ("policy", "model", "cells", "sizes"),
    [
        ("tabular", "", 128, [128]),
        ("tabular", "", 129, [64, 65]),
        ("tabular", "", 300, [100, 100, 100]),
        ("toy", "", 70, [23, 23, 24]),
        ("hf", "m", 3, [1, 1, 1]),
    ],
)
def test_packs_are_few_near_equal_and_never_too_large(
    policy: str, model: str, cells: int, sizes: list[int]
) -> None:
    start = Run(policy=policy, model=model)  # type: ignore[arg-type]
    packs = plan(grid(start, seed=range(cells)))
    assert [len(pack.cells) for pack in packs] == sizes
    assert max(sizes) <= LARGEST[policy]


def test_every_cell_is_in_one_pack_and_the_sweep_keeps_its_order() -> None:
    packs = plan(STALENESS)
    assert [cell for pack in packs for cell in pack.cells] == list(STALENESS)
    assert [pack.index for pack in packs] == list(range(len(packs)))


@pytest.mark.parametrize("field", ["task", "steps", "group", "prompts", "policy_args", "log_every", "device"])
def test_cells_of_unequal_shape_never_share_a_pack(field: str) -> None:
    values = {
        "task": ["bandit", "chain"],
        "policy_args": [(), (("width", 8),)],
        "device": ["cpu", "cuda"],
    }
    packs = plan(grid(Run(), seed=range(2), **{field: values.get(field, [3, 4])}))
    assert len(packs) == 2
    assert all(len({getattr(cell, field) for cell in pack.cells}) == 1 for pack in packs)


@pytest.mark.parametrize("field", STACKED)
def test_cells_that_differ_in_replica_fields_share_a_pack(field: str) -> None:
    values = {"recipe": ["grpo", "m2po"], "recipe_args": [(), (("eps", 0.1),)], "learning_rate": [0.1, 0.2]}
    assert len(plan(grid(Run(), **{field: values.get(field, [3, 4])}))) == 1


def test_a_sweep_with_a_cell_twice_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"holds cell bandit/grpo/lag0/seed1-\w+ 2 times"):
        plan(grid(Run(), seed=[0, 1, 1]))
    with pytest.raises(UserError, match="no cells"):
        plan([])


def test_a_pack_is_named_by_its_cells_and_their_order() -> None:
    cells = grid(Run(), seed=range(3))
    assert pack_id(cells) == "6e810e5be741d175"
    assert len({pack_id(cells), pack_id(cells[::-1]), pack_id(cells[:2])}) == 3


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100])
def test_shards_are_disjoint_and_together_the_whole(count: int) -> None:
    packs = plan(grid(Run(policy="hf", model="m"), seed=range(10)))
    shards = [Shard.parse(f"{number}/{count}").of(packs) for number in range(1, count + 1)]
    assert sorted(pack.index for shard in shards for pack in shard) == list(range(10))
    sizes = [len(shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "4", "1/4/2", "-1/4", "a/b", "", "1/1e3"])
def test_a_shard_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="expected i/n with i from 1 to n"):
        Shard.parse(text)


def test_a_pack_survives_its_journey_as_json() -> None:
    start = Run(task_args=(("size", 4), ("name", "x")), recipe_args=(("cap", float("inf")), ("on", True)))
    (pack,) = plan(grid(start, lag=[0, 4]))
    travelled = json.loads(order(pack))
    assert tuple(map(restore, travelled["cells"])) == pack.cells
    assert (travelled["pack"], travelled["index"]) == (pack.id, 0)
