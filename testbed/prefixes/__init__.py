"""Prefixes: let responses begin after their prompts with given tokens.

`prefix` registers makers of sources: maker(*, …) -> PrefixSource. At every step of a run a source gives the
first tokens of each response; the generating policy continues from there. The policy did not choose the given
tokens, so they leave the mask. All schedules of lag, engines and recipes work with all sources; a new source
is one file here. promises: `parents`, True if sequences of a group continue one another (`parent_B`).

>>> from testbed.prefixes import source_for
>>> source_for(Run(task="running-sum", policy="toy", prefix="teacher", prefix_args=(("tokens", 6),))).tokens
6
"""

from testbed.config.argument_types import wrong_types
from testbed.config.run import Run
from testbed.errors import UserError, refuse
from testbed.prefixes.prefix_source import PrefixSource
from testbed.registry import Registry

prefix = Registry("prefix", package="testbed.prefixes")


def source_for(run: Run) -> PrefixSource | None:
    """Return the source of a run's prefixes; None if responses begin at their prompts.

    Raises UserError for an unknown source or argument, and for an invalid value.
    """
    if run.prefix == "off":
        refuse(wrong_types("prefix 'off'", prefix["off"].function, dict(run.prefix_args)))
        prefix["off"].bind(**dict(run.prefix_args))
        return None
    entry, given = prefix[run.prefix], dict(run.prefix_args)
    make = entry.bind(**given)
    refuse(wrong_types(f"prefix '{run.prefix}'", entry.function, given))
    made: PrefixSource = make()
    return made


def with_parents() -> list[str]:
    """Return the names of sources with sequences that continue one another, and their settings for it."""
    return [entry.promises["parents"] for entry in prefix.values() if entry.promises.get("parents")]


@prefix("off", source="every response begins at its prompt")
def off() -> None:
    """Responses begin at their prompts."""
    raise UserError("prefix 'off' adds no prefixes, so it has no source of them.")
