"""A pack: the cells that run stacked, the unit of work and of commit."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from testbed.config.run import RUN_VERSION, Run, cell_ids

LARGEST = {"tabular": 128, "toy": 32, "hf": 1}
"""Most cells per pack, by policy, for batches of equal size."""
ADAPTERS = 16
"""Most cells per pack of a model on a GPU that differ in their adapters alone."""
WEIGHTS = 80_000_000
"""About the most weights of toy models in a pack: at lag 64 their versions take 20 GB."""

RAGGED = ("drop", "truncate")
"""Age rules that leave batches of unequal size: such cells run one by one."""


@dataclass(frozen=True)
class Pack:
    """Cells that run stacked; `index` is the position in the plan, `id` the name of its results."""

    id: str
    index: int
    cells: tuple[Run, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The cell ids, in order."""
        return tuple(cell_ids(self.cells))

    def __str__(self) -> str:
        more = f" and {len(self.cells) - 1} more" if len(self.cells) > 1 else ""
        return f"pack {self.index} ({self.names[0]}{more})"


def largest(run: Run) -> int:
    """Return the most cells that may run stacked with this one.

    1 in ragged batches; ADAPTERS for LoRA on a GPU, which one run leaves idle; else LARGEST[policy], and of
    toy models no more than have WEIGHTS in their blocks.
    """
    if run.age_limit >= 0 and run.too_old in RAGGED:
        return 1
    adapters = run.device == "cuda" and any(name == "lora" for name, _ in run.policy_args)
    if adapters or run.policy != "toy":
        return ADAPTERS if adapters else LARGEST[run.policy]
    given = dict(run.policy_args)
    width, layers = given.get("width", 32), given.get("layers", 2)
    if not isinstance(width, int) or not isinstance(layers, int) or min(width, layers) < 1:
        return LARGEST["toy"]  # whoever checks the cell refuses it, and says why
    return max(1, min(LARGEST["toy"], WEIGHTS // (12 * layers * width**2)))


def pack_id(cells: Iterable[Run]) -> str:
    """Return the pack's name: 16 hexadecimal digits that depend on its cells, their order and RUN_VERSION."""
    return pack_id_of(cell_ids(cells))


def pack_id_of(names: Iterable[str], version: int = RUN_VERSION) -> str:
    """Return the name of the pack of the cells with these ids."""
    return hashlib.sha256("\n".join([str(version), *names]).encode()).hexdigest()[:16]


def packed(index: int, cells: Sequence[Run], names: Sequence[str]) -> Pack:
    """Return a pack with known cell ids."""
    pack = Pack(pack_id_of(names), index, tuple(cells))
    vars(pack)["names"] = tuple(names)  # storage of the cached property
    return pack


def restore(fields: Mapping[str, Any]) -> Run:
    """Rebuild a Run from the JSON of `dataclasses.asdict`."""
    values: dict[str, Any] = {
        name: tuple((key, item) for key, item in value) if isinstance(value, list | tuple) else value
        for name, value in fields.items()
    }
    return Run(**values)
