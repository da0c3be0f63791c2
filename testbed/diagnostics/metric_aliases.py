"""Other stacks' names for the metrics of metric_names, and where such a name has another meaning."""

from dataclasses import dataclass

from testbed.registry import table_rows


@dataclass(frozen=True)
class Alias:
    """A metric key of another stack. differs: how its value differs; "" for the same definition."""

    stack: str
    key: str
    differs: str = ""

    def __str__(self) -> str:
        return f"{self.stack} {self.key}" + (f" ({self.differs})" if self.differs else "")


ALIASES: dict[str, tuple[Alias, ...]] = {}
for _row in table_rows(__file__, "aliases"):
    _alias = Alias(_row["stack"], _row["key"], _row["differs"])
    ALIASES[_row["metric"]] = (*ALIASES.get(_row["metric"], ()), _alias)


def rows() -> list[dict[str, str]]:
    """Return name, definition, logging time and aliases of every metric, as text."""
    from testbed.diagnostics.metric_names import METRICS, ON_REQUEST

    return [
        {"name": name, "what": what, "logged": when, "elsewhere": "; ".join(map(str, ALIASES.get(name, ())))}
        for when, group in (("by runs", METRICS), ("on request", ON_REQUEST))
        for name, what in group.items()
        if not (when == "on request" and name in METRICS)
    ]
