"""testbed new: write a starting file with an objective, a task, a schedule and their tests."""

from pathlib import Path
from typing import Annotated

import typer

from testbed.errors import UserError

START = Path(__file__).with_name("starting_file.py")


def new(
    file: Annotated[Path, typer.Argument(metavar="FILE.py", help="File to write; it must not exist.")],
) -> None:
    """Write a file with an objective, a task, a schedule and their tests that run as they are.

    Example: testbed new mine.py
    """
    if file.suffix != ".py":
        raise UserError(f"{file} does not end in .py. Give a Python file, as in: testbed new mine.py")
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(START.read_text(encoding="utf-8"))
    except FileExistsError:
        raise UserError(f"{file} exists and stays as it was. Give another name.") from None
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}. Give another place.") from error
    print(f"Wrote {file}. It runs as it is:")
    for command in commands(file):
        print(f"  {command}")


def commands(file: Path) -> list[str]:
    """Return commands that test, compare and train the contents of the file, ready to paste."""
    own = f"testbed run staleness recipe={file}:my_objective,grpo task={file}:MyTask"
    return [
        f"python -m pytest {file}",
        f"testbed objectives compare {file}:my_objective tis",
        f"testbed exact {file}:my_objective",
        f"{own} staleness={file}:my_schedule lag=4 seed=0,1 steps=100 --out results/{file.stem}",
    ]
