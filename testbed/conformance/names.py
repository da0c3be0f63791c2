"""Names that stacks give to a loss's inputs and hyperparameters; arguments are bound by them.

names.csv has the inputs with what they are, our hyperparameters with their names in signatures ("both" sets
eps_low and eps_high), and a stack's names of each input. "old" is the anchor if mu is given too, else both.
"""

from testbed.registry import table_rows

ROWS = tuple(table_rows(__file__, "names"))
ROLES = {row["word"]: row["names"] for row in ROWS if row["of"] == "input"}
HYPER = {row["word"]: row["names"].split() for row in ROWS if row["of"] == "hyperparameter"}
_OF_STACKS = [row for row in ROWS if row["of"] not in ("input", "hyperparameter")]
STACKS = tuple(dict.fromkeys(row["of"] for row in _OF_STACKS))
KNOWN = {name: row["word"] for row in _OF_STACKS for name in row["names"].split()}
"""Argument name in a stack -> its role."""
PER_RESPONSE = ("advantages_per_response", "sequence_advantages")
"""Names that imply one advantage per response; for others both shapes are tried."""


def role_of(argument: str) -> str:
    """Return the role of an argument by its name, "" for an unknown name.

    >>> role_of("old_per_token_logps"), role_of("advantages"), role_of("widget")
    ('old', 'adv', '')
    """
    name = argument.lower()
    return KNOWN.get(name) or KNOWN.get(name.removesuffix("_bt").removesuffix("_b"), "")


def told(defaults: dict[str, object]) -> dict[str, object]:
    """Return the hyperparameters in a signature's defaults, under our names.

    >>> told({"clip_eps": 0.1, "epsilon_high": 0.28})
    {'eps_low': 0.1, 'eps_high': 0.28}
    """
    found: dict[str, object] = {}
    for name, names in HYPER.items():
        value = next((v for k, v in defaults.items() if k.lower() in names and v is not None), None)
        if value is None:
            continue
        if name == "both":
            found = {"eps_low": value, "eps_high": value} | found
        else:
            found[name] = value
    return found
