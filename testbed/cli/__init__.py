"""The command line. Each command is one module, imported in full only when it is called."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

from testbed import __version__
from testbed.cli import (
    arena,
    card,
    claims,
    compare,
    conform,
    demo,
    diagnose,
    doctor,
    exact,
    experiments,
    figures,
    identify,
    listing,
    look_up,
    merge,
    metrics,
    new,
    objectives,
    pipeline,
    plot,
    power,
    pretrained,
    report,
    run,
    status,
    systems,
    train_base,
    tune,
    validate,
    watch,
)
from testbed.cli.pipeline_run import WithTail
from testbed.errors import UserError
from testbed.execution.threads import environment


class Stopped(Exception):
    """Ctrl-C, with what there is to say about it."""


class Commands(typer.core.TyperGroup):
    """The commands; typer itself turns Ctrl-C into an exit code and forgets what was said."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; raise Stopped after Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Stopped(str(stop)) from stop


app = typer.Typer(
    cls=Commands,
    name="testbed",
    help="A laboratory bench for off-policy reinforcement learning of language models.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)
app.command("new")(new.new)
app.command("run")(run.run)
app.command("tune")(tune.tune)
app.command("status")(status.status)
app.command("watch")(watch.watch)
app.command("list")(listing.list_all)
app.command("show")(look_up.show_name)
app.add_typer(objectives.app, name="objectives")
app.add_typer(arena.app, name="arena")
app.command("exact")(exact.exact)
app.command("card")(card.card)
app.add_typer(experiments.app, name="experiments")
app.add_typer(claims.app, name="claims")
app.add_typer(systems.app, name="systems")
app.command("metrics")(metrics.metrics)
app.command("figures")(figures.figures)
app.command("compare")(compare.compare)
app.command("power")(power.power)
app.command("merge")(merge.merge)
app.command("report")(report.report)
app.command("plot")(plot.plot)
app.command("diagnose")(diagnose.diagnose)
app.command("pipeline", cls=WithTail)(pipeline.pipeline)
app.command("identify")(identify.identify)
app.command("conform")(conform.conform)
app.command("validate")(validate.validate)
app.command("train-base")(train_base.train_base)
app.command("pretrained")(pretrained.pretrained)


def _print_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command("version")
def version() -> None:
    """Print the version."""
    print(__version__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: exit code 0, 2 for anything the user can mend, 130 after Ctrl-C."""
    for name, value in environment(workers=1).items():
        os.environ.setdefault(name, value)  # before torch or numba are loaded; workers set their own
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a word may hold bytes that are no text
    words = _with_ray_address(list(sys.argv[1:] if arguments is None else arguments))
    try:
        code = app(words, standalone_mode=False, prog_name="testbed")
    except UserError as error:
        sys.exit(_complain(str(error)))
    except (Stopped, KeyboardInterrupt, typer.Abort) as stop:
        print(f"\n{str(stop) or 'Stopped.'}", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        sys.exit(_complain(f"{error.filename or 'A file'}: {error.strerror}."))
    except BaseException as error:  # click's usage errors have a text; exit() in a user's file is an error
        if not hasattr(error, "format_message"):
            from testbed.user_files import line_of_a_user, words_of

            if place := line_of_a_user(error):
                sys.exit(_complain(f"{place}: {words_of(error)}"))
            if isinstance(error, RuntimeError) and "Symlink loop" in str(error):  # Path.resolve before 3.13
                sys.exit(_complain(f"{error}."))
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            print(error.format_message())
            sys.exit(0)
        sys.exit(_complain(error.format_message(), getattr(error, "ctx", None)))
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, context: object = None) -> int:
    print(f"error: {message}", file=sys.stderr)
    path = getattr(context, "command_path", "")
    if path:
        print(f"Try '{path} --help'.", file=sys.stderr)
    return 2


def _with_ray_address(words: list[str]) -> list[str]:
    """Let `--ray` stand without an address: a local Ray is started then."""
    for index, word in enumerate(words):
        after = words[index + 1] if index + 1 < len(words) else "--"
        if word == "--ray" and (after.startswith("-") or "=" in after):
            return [*words[:index], "--ray=local", *words[index + 1 :]]
    return words


__all__ = ["app", "main"]
