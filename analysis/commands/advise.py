"""testbed advise: the method that the arena's table recommends at the drift of a training log."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import show
from testbed.errors import UserError


def advise(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG...", help="Log files, or folders that contain them.")
    ],
    format_: Annotated[
        str,
        typer.Option("--format", metavar="NAME", help="Format of the log; by default found from the files."),
    ] = "",
    guess_rate: Annotated[
        bool, typer.Option("--guess-rate", help="Order by the loss at a rate off by a factor of 3.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say which method and setting lose least at the drift of a training log, and how much.

    Measures KL per token, ESS, clip share and ages, and reads the arena's table where GRPO drifts as much.
    Outside the table's range it says so and advises nothing.

    Examples: testbed advise output/token_exports

    testbed advise output/token_exports --guess-rate
    """
    from analysis.arena import advice, table
    from testbed.logs.readers import read
    from testbed.logs.sanity_checks import serious

    log = read(logs, format_)
    try:
        drift = advice.drift_of(log)
    except UserError as error:
        raise UserError(
            f"{error} To recompute log-probabilities: testbed diagnose LOG --model … --behavior-model … "
            "--write FILE, then advise FILE."
        ) from error
    found = advice.advise(drift, table.load(), guess_rate)
    if wrong := serious(log):
        doubt = f"The drift below may be wrong, because the log-probabilities look wrong: {wrong[0]}"
        found = replace(found, says=[doubt, *found.says])
    if json:
        show.as_json(asdict(found))
        return
    show.say([*log.notes, *found.says])
    show.table(
        [{"measured": name, "value": value} for name, value in vars(drift).items() if value == value],
        "Drift of the log, means over its steps",
    )
    if found.inside:
        order = "loss at a wrong rate" if guess_rate else "the first run's seeds"
        show.table(found.rows, f"Loss of accuracy against fresh data; order by {order}")
        show.table(found.cells, "Evidence: cells of the arena whose KL under GRPO is within a factor of 3")
