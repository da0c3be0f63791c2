"""testbed metrics: every metric, its definition and what other stacks call it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def metrics(
    pattern: Annotated[str, typer.Argument(help="Shell pattern of names, ours or another stack's.")] = "*",
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write them all as a page, docs/metrics.md say.")] = None,
) -> None:
    """List metrics with definitions and aliases.

    Examples: testbed metrics    testbed metrics '*ess*sequence*'    testbed metrics '*k3_kl*' --json
    """
    from fnmatch import fnmatchcase

    from testbed.cli import show
    from testbed.diagnostics import metric_aliases
    from testbed.errors import UserError, suggest

    if page is not None:
        try:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(metric_aliases.page())
        except OSError as error:
            raise UserError(f"{page} cannot be written: {error.strerror}. Give another file.") from error
        print(page)
        return
    known = {
        row["name"]: (row, [row["name"], *(a.key for a in metric_aliases.ALIASES.get(row["name"], ()))])
        for row in metric_aliases.rows()
    }
    found = [row for row, names in known.values() if any(fnmatchcase(name, pattern) for name in names)]
    if not found:
        hint = suggest(pattern, known)
        raise UserError(f"No metric matches '{pattern}'.{hint} All of them: testbed metrics")
    show.as_json(found) if json else show.table(found)
