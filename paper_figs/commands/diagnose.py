"""testbed diagnose: analyze importance ratios in training logs of this bench or other stacks."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import show
from testbed.cli.slow_notice import slow_notice
from testbed.errors import UserError

if TYPE_CHECKING:
    from analysis.logs.diagnosis import Diagnosis
    from testbed.logs.record import Log
    from testbed.logs.scalars import ScalarLog

SHOWN = (
    "ppo_clip", "gspo", "cispo", "tis", "icepop", "m2po", "topr", "decoupled_ppo", "dppo_tv", "sapo",
    "opsm",
)  # fmt: skip
"""Objectives of the terminal's table; the page and --json have all of them."""


def diagnose(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG...", help="Log files, or folders that contain them.")
    ],
    format_: Annotated[
        str,
        typer.Option("--format", metavar="NAME", help="Format of the log; by default found from the files."),
    ] = "",
    model: Annotated[
        Path | None,
        typer.Option(help="Local model that recomputes missing log-probabilities of the trainer."),
    ] = None,
    behavior_model: Annotated[
        Path | None, typer.Option(help="The same for the sampler's log-probabilities.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Temperature of recomputed log-probabilities.")] = 1.0,
    html: Annotated[Path | None, typer.Option(help="Write one self-contained page to this file.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write the record to this file: .parquet, else JSON lines.")
    ] = None,
    objective: Annotated[
        list[str] | None, typer.Option(help="Objectives to apply; repeatable; all by default.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the page.")] = False,
) -> None:
    """Say what a training log holds: ESS with floors, tails, KL, ages, what objectives cut, early warnings.

    Reads prime-rl, NeMo-RL, slime and miles, SkyRL, open-instruct, Trinity, PipelineRL, TRL, verl and AReaL
    logs, and this bench's own record (`testbed run … record=tokens`); and scalars by step: TRL's
    trainer_state.json, JSON lines of verl's file logger and of tinker-cookbook.

    Examples: testbed diagnose output/token_exports --html log.html

    testbed diagnose completions/ --model ./my-model --behavior-model ./my-sft-model

    testbed diagnose checkpoint-500/trainer_state.json
    """
    from analysis.logs.diagnosis import diagnose as diagnosed
    from testbed.logs.record import write as write_record
    from testbed.logs.scalars import BLIND, ScalarLog

    if open_ and html is None:
        raise UserError("--open needs a page: give --html FILE.")
    asked = ", ".join(objective) if objective else "every objective"
    log = _read(logs, format_, model, behavior_model, temperature)
    if isinstance(log, ScalarLog) and (write or model or behavior_model):
        raise UserError(f"{BLIND} Leave --write, --model and --behavior-model out.")
    notice = slow_notice(f"Computing the weights of {asked}; a minute for large logs.")
    found = diagnosed(log, objective or None, weighing=notice)
    if write is not None and not isinstance(log, ScalarLog):
        write_record(log, write)
    if html is not None:
        from paper_figs.diagnosis_page import page
        from paper_figs.save_figures import write_file

        write_file(html, page(found).encode())
    if json:
        show.as_json(found.plain())
        return
    report(found)
    for path in (write, html):
        if path is not None:
            print(f"Wrote {path}")
    if open_ and typer.launch(str(html)):
        print(f"No program could be started to open {html}.", file=sys.stderr)


def _read(
    logs: list[Path], name: str, model: Path | None, behavior: Path | None, temperature: float
) -> "Log | ScalarLog":
    from testbed.logs.readers import read_any
    from testbed.logs.recompute import recomputed
    from testbed.logs.scalars import ScalarLog

    log = read_any(logs, name)
    if isinstance(log, ScalarLog):
        return log
    if behavior is not None:
        log = recomputed(log, behavior, "logp_mu", temperature)
    return log if model is None else recomputed(log, model, "logp_pi", temperature)


def report(found: "Diagnosis") -> None:
    """Print the verdict, then the summary."""
    show.say([found.verdict])
    print()
    for name, value in found.facts.items():
        print(f"{name:<22} {f'{value:.4g}' if isinstance(value, float) else value}")
    print()
    for title, lines in (("Dropped or assumed", found.notes), ("Looks wrong", found.doubts)):
        if lines:
            print(f"{title}:")
            show.say([f"- {line}" for line in lines])
            print()
    if found.scalars:
        show.table(found.scalars, "Known metrics")
        _alerts(found)
    if not found.ratios:
        return
    show.table(found.ess_rows(), "Effective sample size, share of N, all sequences together")
    show.table(
        found.tail_rows(),
        "Tail of the ratios: Pareto-k, for independent weights of a continuous distribution",
    )
    show.table(_numbers(found), "Divergence")
    if found.ages:
        show.table(found.ages[:12], "By age in versions" + (", the first 12" if found.ages[12:] else ""))
    chosen = [row for row in found.objectives if row["objective"] in SHOWN] or found.objectives
    if chosen:
        show.table(
            chosen,
            f"What objectives do with these tokens; --html and --json have all {len(found.objectives)}",
        )
    _alerts(found)


def _numbers(found: "Diagnosis") -> list[dict[str, Any]]:
    """Return KL estimates and the split as rows."""
    rows = [
        {"number": name.rpartition("/")[2], "value": value}
        for name, value in found.ratios.items()
        if "/kl_" in name or "/chi2_" in name
    ]
    return rows + [
        {"number": f"split {name}", "value": value} for name, value in found.split.items() if name != "tokens"
    ]


def _alerts(found: "Diagnosis") -> None:
    fired = [alert.plain() for alert in found.peers if alert.fired]
    quiet = len(found.peers) - len(fired)
    if fired:
        show.table(fired, "Alerts at limits that peers document")
    if found.peers:
        print(f"{quiet} of {len(found.peers)} limits that peers document were never crossed.")
    if found.laboratory:
        show.table([alert.plain() for alert in found.laboratory], "Limits from the committed tables")
    print(found.laboratory_note)
