"""Read the bench's record, as JSON lines or Parquet, from `record=tokens` or `testbed diagnose --write`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, from_plain, made


def read(paths: Sequence[Path]) -> Log:
    """Return the sequences as written; of a truncated file, the complete lines."""
    notes: list[str] = []
    found = []
    for path in paths:
        if path.suffix == ".parquet":
            rows = [(f"{path.name}, row {n}", row) for n, row in enumerate(files.parquet_rows(path), start=1)]
        else:
            rows = files.json_lines(path, notes)
        found += [from_plain(row, where) for where, row in rows]
    sources = list(dict.fromkeys(one.source for one in found))
    if len(sources) > 1:
        found = [replace(one, group=f"{one.source}/{one.group}") for one in found]
        notes.append(f"{len(sources)} runs are pooled; give the folder of one run to see that run alone.")
    shown = "".join(sources[:1]) if len(sources) < 2 else f"{len(sources)} runs, the first {sources[0]}"
    return made(shown or "record", found, notes)


FILES = ("*.tokens.parquet", "*.tokens.jsonl")
READER = Reader("record", ", ".join(FILES), FILES, ("record", "mask"), read)
