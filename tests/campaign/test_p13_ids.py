"""P13: ids are stable until a version rises."""

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from testbed.config.fields import check, normal
from testbed.config.run import YOUNGER, Run, canonical, canonicals, cell_id, grid
from testbed.config.toml_file import expand
from testbed.execution.packs import plan

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "ids.json").read_text())
SWEEPS = {
    "bandit": grid(Run(), lag=[0, 4, 16], seed=range(100), recipe=["grpo", "m2po"]),
    "toy": grid(Run(policy="toy", task="running-sum"), seed=range(70)),
    "ragged": grid(Run(age_limit=3), seed=range(3)),
    "interleaved": grid(Run(), steps=[3, 4], seed=range(130)),
}


def thawed(values: Mapping[str, Any]) -> Run:
    pairs = {k: tuple(map(tuple, v)) if isinstance(v, list) else v for k, v in values.items()}
    return Run(**pairs)


def test_cells_and_packs_have_the_ids_that_they_once_had(campaign):
    """The file was written once, before planning was made quick, and is never written again."""
    for values, name in GOLDEN["cells"]:
        assert cell_id(thawed(values)) == name
    for name, cells in SWEEPS.items():
        assert [[pack.id, len(pack.cells)] for pack in plan(cells)] == GOLDEN["plans"][name]
    campaign.tried("ids of cells and packs against a golden file", len(GOLDEN["cells"]) + len(SWEEPS))


def plainly(run: Run) -> str:
    """Return the canonical text as its definition says it, without any short cut."""
    values = asdict(run)
    for item in fields(run):
        if item.name in YOUNGER and values[item.name] == item.default:
            del values[item.name]
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def test_neighbors_do_not_change_what_a_cell_is_called(campaign):
    """Texts are made and values checked with the cell before in mind; the order must not matter."""
    trials = campaign.trials(short=300, full=20_000)
    dice = random.Random(13)
    some = [thawed(values) for values, _ in GOLDEN["cells"]]
    cells = []
    for _ in range(trials):
        cell = dice.choice(some)
        other = dice.choice([True, 1, 1.0, 0.0, -0.0, False, 0, "1"])
        cells.append(replace(cell, recipe_args=(("a", other),), max_grad_norm=dice.choice([0, -0.0])))
    assert list(canonicals(cells)) == list(map(plainly, cells)) == list(map(canonical, cells))
    numbers = [Run(recipe_args=(("a", dice.choice([True, 1, 0, False, 2.5, 1.0])),)) for _ in range(trials)]
    sound, wrong = normal(numbers)
    assert not wrong
    assert list(map(canonical, sound)) == [canonical(check(cell)) for cell in numbers]
    assert {canonical(cell) for cell in expand(numbers, [])} == set(map(plainly, numbers))
    campaign.tried("random neighbors against the plain definition of the text behind an id", 2 * trials)
