"""testbed compare: the arms of a sweep against a baseline."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from testbed.cli import show
from testbed.errors import UserError, counted


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RESULTS...", help="Results folders.")],
    by: Annotated[str, typer.Option(help="Setting to compare, as lag; default: the first that varies.")] = "",
    baseline: Annotated[str, typer.Option(help="Value to compare with; default grpo, else the first.")] = "",
    metric: Annotated[
        str, typer.Option(help="final_accuracy, best, 'min NAME', …; default accuracy, value or reward.")
    ] = "",
    where: Annotated[
        list[str] | None, typer.Option(metavar="SETTING=VALUE,…", help="Only these cells; repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print as a LaTeX table (booktabs).")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print as a Markdown table.")] = False,
) -> None:
    """Compare the arms of a sweep with a baseline, paired by seed, separately for all other settings.

    Examples:
    testbed compare results/staleness --by recipe --baseline grpo --metric final_accuracy

    testbed compare results/mine --by lag --baseline 0 --where recipe=grpo --markdown
    """
    from analysis.sweeps.sweep_comparison import compare as compared
    from analysis.sweeps.sweep_comparison import in_words
    from analysis.sweeps.sweep_table import (
        load,
        only,
        setting,
        unfinished,
        usual_axis,
        usual_metric,
        value_words,
    )

    if json + latex + markdown > 1:
        raise UserError("--json, --latex and --markdown exclude each other; give one of them.")
    rows = only(load(*folders), where or ())
    metric, by = metric or usual_metric(rows), setting(rows, by) if by else usual_axis(rows)
    table = compared(rows, by, baseline, metric)
    found = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    short = [in_words(row, by, metric) for row in found]
    if json:
        show.as_json({"by": by, "metric": metric, "unfinished": unfinished(*folders), "rows": found})
    elif latex:
        print(show.latex(short))
    elif markdown:
        print(show.markdown(short))
    else:
        show.table(short)
        if (told := value_words(rows, metric)) != metric:
            show.say([f"{metric}: {told}."])
        show.say(NOTE.format(baseline=found[0]["baseline"], rows=counted(len(found), "row")).splitlines())
        if any(row["verdict"] == "both 0" for row in found):
            print("Both 0: no run of either arm left 0, so nothing was compared. Train longer.")
    if missing := unfinished(*folders):
        text = f"{counted(missing, 'planned cell')} without a result: the comparison may flatter their arms."
        print(text, file=sys.stderr)


NOTE = """\
Differences: arm less {baseline}, paired by seed, with their 95% Student interval; p: Holm, {rows}.
P(higher): chance that a run of the arm ends above one of {baseline}. Collapsed: Wilson interval.
Seeds needed: to decide a difference and spread like these, with power 0.8; from few seeds, a guess."""
