"""testbed pipeline: simulate asynchronous training, write its lag trace, or plan a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import show
from testbed.cli.extensions import part
from testbed.cli.pipeline_run import pipeline_run
from testbed.cli.slow_notice import slow_notice
from testbed.errors import UserError, counted

BATCHES = 200
COMPILING = "Compiling the simulator: up to half a minute, on the first call only."

if TYPE_CHECKING:
    from testbed.pipeline.design import Design
    from testbed.pipeline.simulate import Report


def pipeline(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[plan] [FIELD=VALUE]...", help="Fields of the design, or of the plan after `plan`."
        ),
    ] = None,
    batches: Annotated[
        int | None, typer.Option(min=1, help="Batches measured per replication, and in a trace; default 200.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Replications for standard errors; default 4, in a plan 1.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the replications.")] = 0,
    trace: Annotated[Path | None, typer.Option(help="Write the lag trace: FILE.csv or FILE.parquet.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the lag histograms: FILE.png or FILE.pdf.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of fields; the command line overrides it.")
    ] = None,
    then: Annotated[
        str | None,
        typer.Option(
            metavar="run SWEEP ...", help="Train a sweep under these lags; the words of `testbed run` follow."
        ),
    ] = None,
    reach: Annotated[
        float | None, typer.Option(help="Target return of --then run; default 0.9 of the best final return.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Simulate a pipeline of generation and training: throughput, staleness, drops; or plan a cluster.

    Examples:
    testbed pipeline slots=240 batch=240 train_time=15 queue_rule=drop-oldest

    testbed pipeline admission=capacity eta=1 in_flight=true --trace lags.parquet

    testbed pipeline plan accelerators=8,64,8000 trainer_share=0.25,0.5

    testbed pipeline admission=capacity eta=4 --then run bandit-grid recipe=grpo,reinforce lag=0 seed=0,1
    """
    given = words or []
    if reach is not None and then is None:
        raise UserError("--reach is the target return of a sweep. Give --then run SWEEP too.")
    if given[:1] == ["plan"]:
        _refuse_in_plan(batches, trace, figure, config, then)
        from testbed.pipeline import sizing

        plan = sizing.from_words(given[1:])
        many = counted(len(sizing.designs(plan)), "pipeline")
        with slow_notice(f"Simulating {many}, up to {max(plan.accelerators):,} accelerators each: minutes."):
            rows = sizing.table(plan, replicas=replicas or 1, seed=seed)
        show.as_json(rows) if json else show.table(rows)
        return
    design = _design(given, config)
    if then is not None:
        _refuse_before_run(figure, replicas, None if trace else batches)
    if trace:
        from testbed.pipeline import trace as traces

        with slow_notice(COMPILING):
            traces.write(traces.record(design, batches or BATCHES, seed), trace)
    if then is None:
        _report(design, batches or BATCHES, replicas or 4, seed, figure, json)
        return
    pipeline_run(then, design, seed, reach, json)


def _report(
    design: "Design", batches: int, replicas: int, seed: int, figure: Path | None, json: bool
) -> None:
    from testbed.pipeline.simulate import simulate_one

    with slow_notice(COMPILING):
        found = simulate_one(design, replicas=replicas, batches=batches, seed=seed)
    if figure:
        part("draw_lags")(found, figure)
    rows = _rows(design, found)
    show.as_json({row["quantity"]: row for row in rows} | _histograms(found)) if json else show.table(rows)


def _refuse_before_run(figure: Path | None, replicas: int | None, batches: int | None) -> None:
    if figure:
        raise UserError("--figure draws the lags of a simulation and does not go with --then. Leave one out.")
    if replicas or batches:
        raise UserError(
            "A sweep after --then follows one trace, as long as its cells train: --replicas and --batches "
            "set nothing there. Leave them out."
        )


def _design(given: list[str], config: Path | None) -> "Design":
    """Return the design of words and a file; a word on the command line overrides the file."""
    from testbed.pipeline.design import from_toml, from_words

    named = {word.partition("=")[0] for word in given}
    kept = [word for word in from_toml(config) if word.partition("=")[0] not in named] if config else []
    return from_words([*kept, *given])


def _refuse_in_plan(batches: int | None, *files: object) -> None:
    if batches is not None:
        raise UserError("A plan measures 60,000 responses a row, so --batches sets nothing. Leave it out.")
    if any(files):
        raise UserError(
            "A plan has many designs; --trace, --figure, --config and --then take one design. Leave out "
            "`plan` to use them."
        )


def _rows(design: "Design", found: "Report") -> list[dict[str, Any]]:
    from testbed.pipeline.simulate import VALUES

    paper = _on_paper(design)
    return [
        {
            "quantity": name,
            "mean": found.mean(name),
            "stderr": found.stderr(name),
            "closed form": paper.get(name, ""),
            "meaning": meaning,
        }
        for name, meaning in VALUES.items()
    ]


def _on_paper(design: "Design") -> dict[str, float]:
    """Return the closed forms that apply to this design, by quantity."""
    from testbed.pipeline import closed_forms

    d = design
    plain = d.pools == "split" and d.max_age is None and d.pieces == 1 and d.updates == 1 and d.sync_time == 0
    plain = plain and d.admission == "none" and not d.barrier and not d.tool_time
    if not plain or d.order != "fifo" or d.sync_every > 1:
        return {}
    found = {"period": closed_forms.streaming_period(d)}
    load = closed_forms.load(d)
    if load < 1 or d.queue_rule == "drop-oldest":
        found["lag_sample"] = closed_forms.sample_lag(d)
    if load < 1:
        found["lag_token"] = closed_forms.token_lag(d)
    return found


def _histograms(found: "Report") -> dict[str, Any]:
    shares = {"token": found.token_K, "sample": found.sample_K, "group": found.group_K}
    return {f"lag_{name}_shares": list(map(float, s_K[: last(s_K)])) for name, s_K in shares.items()}


def last(share_K: Any) -> int:
    """Return the number of bins up to the last that is not empty."""
    return max((k + 1 for k, share in enumerate(share_K) if share > 0), default=1)
