"""Write docs/metrics.md: the logged numbers, their names in other stacks, and what shares a name."""

from analysis.pages.markdown import table, text
from testbed.diagnostics.metric_aliases import rows


def page() -> str:
    logged = (
        (f"`{row['name']}`", row["what"], row["elsewhere"]) for row in rows() if row["logged"] == "by runs"
    )
    asked = ((f"`{row['name']}`", row["what"]) for row in rows() if row["logged"] == "on request")
    return text(
        "metrics",
        logged=table(("name", "definition", "elsewhere"), logged),
        asked=table(("name", "definition"), asked),
    )
