"""A pack's columns as Parquet: the same numbers, the same bytes, and nothing that runs."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.fake_training import train
from support.refusals import refuses
from support.small_store import PACKS, content

from testbed.config.run import Run, grid
from testbed.execution.packs import plan
from testbed.results.parquet import HEADER, decode, encode, header


def test_a_table_comes_back_as_it_was_written():
    (pack,) = plan(grid(Run(), seed=range(2)))
    columns = {
        "cell": np.repeat(pack.names, 2), "step": np.array([0, 10, 0, 10]), "recipe": np.repeat(["grpo"], 4),
        "accuracy": np.array([0.1, np.nan, -0.0, 1e300]), "diverged": np.array([False, True, False, False]),
        "histogram": [np.array([1, 2]), np.array([3, 4]), np.array([0, 0]), np.array([5, 6])],
    }  # fmt: skip
    table = decode(encode(columns, pack))
    assert [str(field.type) for field in table.schema] == [
        "string", "int64", "string", "double", "double", "list<element: int64>",
    ]  # fmt: skip
    assert table["accuracy"].to_numpy().tobytes() == np.array([0.1, np.nan, -0.0, 1e300]).tobytes()
    assert table["histogram"].to_pylist() == [[1, 2], [3, 4], [0, 0], [5, 6]]
    assert table["diverged"].to_pylist() == [0.0, 1.0, 0.0, 0.0]


def test_rows_are_put_in_order_of_the_pack_and_the_step():
    (pack,) = plan(grid(Run(), seed=[5, 1]))
    first, second = pack.names
    columns = {"cell": [second, first, second, first], "step": [1, 1, 0, 0], "x": [4.0, 2.0, 3.0, 1.0]}
    table = decode(encode(columns, pack))
    assert table["x"].to_pylist() == [1.0, 2.0, 3.0, 4.0]
    assert table["cell"].to_pylist() == [first, first, second, second]


@pytest.mark.parametrize(
    "change",
    [lambda c: c.pop("step"), lambda c: c.update(accuracy=c["accuracy"][:-1]),
     lambda c: c.update(cell=np.array(["other"] * 3))],
)  # fmt: skip
def test_a_malformed_result_is_refused(change):
    columns = train(PACKS[0].cells)
    change(columns)  # type: ignore[operator]
    refuses(".", encode, columns, PACKS[0], error=ValueError)


def test_a_header_is_an_object_or_none(tmp_path):
    for text, found in (
        (None, {}),
        ('{"pack": "a"}', {"pack": "a"}),
        ("[1]", "The header is [1], expected an object."),
    ):
        table = pa.table({"a": [1]}).replace_schema_metadata(
            None if text is None else {HEADER: text.encode()}
        )
        pq.write_table(table, tmp_path / "x")
        content = (tmp_path / "x").read_bytes()
        if isinstance(found, str):
            assert refuses("", header, content, error=ValueError) == found
        else:
            assert header(content) == found


def test_a_result_that_says_nothing_of_one_cell_is_refused():
    (pack,) = plan(grid(Run(), seed=range(2)))
    refuses("lacks rows of", encode, train(pack.cells[:1]), pack, error=ValueError)


def test_the_same_numbers_give_the_same_bytes_in_another_process():
    script = (
        "import sys, hashlib; from testbed.config.run import Run, grid\n"
        "from testbed.execution.packs import plan\n"
        "from testbed.results.parquet import encode; from support.fake_training import train\n"
        "pack = plan(grid(Run(policy='hf', model='m'), lag=[0, 4], seed=range(3)))[0]\n"
        "print(hashlib.sha256(encode(train(pack.cells), pack)).hexdigest())"
    )
    command = [sys.executable, "-c", script]
    there = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert there.stdout.strip() == hashlib.sha256(content(PACKS[0])).hexdigest()
