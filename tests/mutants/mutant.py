"""One planted bug."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """Replace `old` by `new` everywhere in `file`; `tests` must then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: str = "tests/contracts/test_objective_contract.py"
