"""testbed evidence pages: the pages of docs/ that are written from the code and the verdicts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from analysis.pages import metrics_page
from testbed.errors import UserError, unknown


def write_pages(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="atlas, findings, leaderboard, metrics, questions or systems."
        ),
    ] = None,
    docs: Annotated[Path, typer.Option(help="Folder of the pages.")] = Path("docs"),
    data: Annotated[
        Path | None, typer.Option(help="Folder of the atlas's table; default: the committed ones.")
    ] = None,
) -> None:
    """Write pages of docs/; all of them when none is named.

    atlas: objectives.md with a picture per family, its table, and stacks/. findings: findings.md.
    leaderboard: leaderboard.md. metrics: metrics.md. questions: questions.md. systems: verdicts.md.

    Examples:
    testbed evidence pages

    testbed evidence pages atlas --docs out/docs --data out/tables
    """
    for name in names or ():
        if name not in PAGES:
            raise unknown("page", name, PAGES)
    for name in names or PAGES:
        for path in PAGES[name](docs, data):
            print(path)


def _atlas(docs: Path, data: Path | None) -> list[Path]:
    from paper_figs import atlas_files

    return atlas_files.write(data or atlas_files.DATA, docs)


def _findings(docs: Path, _data: Path | None) -> list[Path]:
    from analysis.pages import findings_page

    return _page(docs / "findings.md", findings_page.page())


def _leaderboard(docs: Path, _data: Path | None) -> list[Path]:
    from analysis.pages import leaderboard_page

    return _page(docs / "leaderboard.md", leaderboard_page.page())


def _metrics(docs: Path, _data: Path | None) -> list[Path]:
    return _page(docs / "metrics.md", metrics_page.page())


def _questions(docs: Path, _data: Path | None) -> list[Path]:
    from analysis.judging.verdicts import by_claim
    from analysis.questions import question_list

    return _page(docs / "questions.md", question_list.page(by_claim(), question_list.stored()))


def _systems(docs: Path, _data: Path | None) -> list[Path]:
    from analysis.judging.verdicts import by_claim
    from analysis.pages.systems_page import index, summary

    readme = docs.parent / "README.md"
    if readme.is_file():
        said = re.sub(r"(?m)^Central claims of .*$", lambda _: summary(by_claim()), readme.read_text())
        _page(readme, said)
    return _page(docs / "verdicts.md", index(by_claim()))


def _page(path: Path, text: str) -> list[Path]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}. Give another folder: --docs."
        ) from error
    return [path]


PAGES: dict[str, Callable[[Path, Path | None], list[Path]]] = {
    "atlas": _atlas, "findings": _findings, "leaderboard": _leaderboard, "metrics": _metrics,
    "questions": _questions, "systems": _systems,
}  # fmt: skip
