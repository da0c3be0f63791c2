"""The command line. Each command is one module, imported in full only when it is called."""

import contextlib
import io
import os
import stat
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core

from testbed import __version__
from testbed.cli.extensions import Command, installed, read_commands
from testbed.cli.moved import moved
from testbed.cli.pipeline_run import WithTail
from testbed.errors import UnknownName, UserError, printable
from testbed.execution.threads import environment
from testbed.user_files import line_of_a_user, no_silent_exit, words_of


class Stopped(Exception):
    """Ctrl-C, with the message about it."""


SECTIONS = ("Start", "Run", "Read", "Objectives", "Arena", "Look up", "Systems and evidence")
CORE = read_commands(
    __file__,
    {
        "objectives from": {"context_settings": {"ignore_unknown_options": True}},
        "pipeline": {"cls": WithTail},
    },
)
"""Commands of the core."""


class Commands(typer.core.TyperGroup):
    """The commands; typer itself turns Ctrl-C into an exit code and drops its message."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; raise Stopped after Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Stopped(str(stop)) from stop

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """Write one line per command, by section, so that the help fits on one screen."""
        formatter.write("\n")
        for section in SECTIONS:
            label = section
            for command in commands():
                if command.section == section and " " not in command.name:
                    formatter.write(f"{label:<20} {command.name:<10} {command.help}\n")
                    label = ""


def commands() -> list[Command]:
    """Return the commands of the core and of every installed package, by section."""
    every = [*CORE, *(command for extension in installed() for command in extension.commands)]
    return sorted(every, key=lambda command: SECTIONS.index(command.section))


def command_line() -> typer.Typer:
    """Return the command line with every command that is installed."""
    options: dict[str, Any] = {"rich_markup_mode": None, "no_args_is_help": True}
    app = typer.Typer(
        cls=Commands,
        name="testbed",
        help="A laboratory bench for off-policy reinforcement learning of language models.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **options,
    )
    groups: dict[str, typer.Typer] = {}
    for command in commands():
        group, _, name = command.name.rpartition(" ")
        if not command.function:
            groups[command.name] = typer.Typer(help=command.help, **options)
            app.add_typer(groups[command.name], name=command.name)
        else:
            inside, short = groups.get(group, app), command.help or None
            inside.command(name, short_help=short, **command.options)(command.load())
    app.callback()(_options)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


def _options(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


LONGEST = 20_000
"""Most characters of an error message; a sweep file may have many wrong lines."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: exit code 0, 2 for anything the user can correct, 130 after Ctrl-C."""
    for name, value in environment(workers=1).items():
        os.environ.setdefault(name, value)  # before torch or numba load; workers set their own
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a word may hold bytes that are not text
    words = _with_ray_address(list(sys.argv[1:] if arguments is None else arguments))
    if answer := moved(words):
        sys.exit(_complain(answer))
    try:
        _refuse_pipes(words)
        with no_silent_exit():
            code = command_line()(words, standalone_mode=False, prog_name="testbed")
    except UserError as error:
        sys.exit(_complain(_recipe_named(error) or str(error)))
    except (Stopped, KeyboardInterrupt, typer.Abort) as stop:
        print(f"\n{str(stop) or 'Stopped.'}", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        sys.exit(_complain(f"{error.filename or 'A file'}: {error.strerror or error}."))
    except BaseException as error:  # click's usage errors have a text; exit() in a user's file is an error
        if not hasattr(error, "format_message"):
            if place := line_of_a_user(error):
                sys.exit(_complain(f"{place}: {words_of(error)}"))
            if isinstance(error, RuntimeError) and "Symlink loop" in str(error):  # Path.resolve before 3.13
                sys.exit(_complain(f"{error}."))
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # the help itself
            print(error.format_message())
            sys.exit(0)
        sys.exit(_complain(error.format_message(), getattr(error, "ctx", None)))
    sys.exit(code if isinstance(code, int) else 0)


def _recipe_named(error: UserError) -> str:
    """Return a hint if a recipe's name was given for an objective's, else ""."""
    if not (isinstance(error, UnknownName) and error.kind == "objective"):
        return ""
    from testbed.recipes import recipe

    found = recipe.get_named(error.name)
    return f"{error.name} is a recipe; its objective is {found.bind()().objective}." if found else ""


ENDLESS = ("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def _refuse_pipes(words: Sequence[str]) -> None:
    """Raise UserError for a named pipe or a device in place of a file: reading one may never end."""
    values = [word.partition("=")[2] or word for word in words]
    for path in (*values, *(value.partition(".py:")[0] + ".py" for value in values)):
        with contextlib.suppress(OSError, ValueError):
            if not stat.S_ISFIFO(os.stat(path).st_mode) and os.path.realpath(path) not in ENDLESS:
                continue
            break
    else:
        return
    raise UserError(f"{path} is a pipe or a device, expected a file. Save what it gives in a file first.")


def _complain(message: str, context: object = None) -> int:
    print(f"error: {printable(message, LONGEST)}", file=sys.stderr)
    path = getattr(context, "command_path", "")
    if path:
        print(f"Try '{path} --help'.", file=sys.stderr)
    return 2


def _with_ray_address(words: list[str]) -> list[str]:
    """Let `--ray` have no address: a local Ray is then started."""
    for index, word in enumerate(words):
        after = words[index + 1] if index + 1 < len(words) else "--"
        if word == "--ray" and (after.startswith("-") or "=" in after):
            return [*words[:index], "--ray=local", *words[index + 1 :]]
    return words


__all__ = ["command_line", "main"]
