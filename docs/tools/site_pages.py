"""Hooks of the site: pages made from the code, patterns in the navigation, Markdown as GitHub reads it."""

from __future__ import annotations

import ast
import fnmatch
import os
import posixpath
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
TOP = ("testbed", "envs", "analysis", "paper_figs")
MODULES = 8
"""Most modules on a page of the API reference, so that none exceeds 300 kB of HTML."""
# Pages that lie elsewhere in the repository, with their place in the site.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "tests/README.md": "tests.md",
    "docs/verdicts.md": "systems/index.md",
}
BOOSTS = {
    "reference/*": 0.005,
    "LOG.md": 0.1,
    "log-before-*": 0.1,
    "changelog.md": 0.1,
    "systems/*": 2,
    "experiments/*": 2,
    "howto/*": 4,
    "findings.md": 4,
    "*": 3,
}
"""Weights of pages in the search: what was found and how to do it stand above the API."""
WIDE = ("experiments/*", "systems/*", "arena.md", "leaderboard.md", "objectives.md", "gallery.md")
"""Pages of wide tables, without a table of contents beside them."""


GALLERY = (
    *("arena", "known-ladder", "known-rates", "staleness", "phase-diagram", "kl-or-clip"),
    *("tuned-rec", "ratio-tails", "reward-ensembles"),
)
"""Figures of the gallery: a part of those that `make figures` draws, as all take minutes."""
DRAWN = GALLERY[: int(os.environ.get("GALLERY", len(GALLERY)))]
"""GALLERY=1: the first alone, for tests that build the site; others draw every figure."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here and replace patterns in the navigation by the pages they stand for."""
    for name, text in {
        **reference_pages(),
        **pages_from_elsewhere(),
        **decisions_page(),
        **evidence_pages(),
    }.items():
        files.append(File.generated(config, name, content=text))
    for name, content in gallery().items():
        files.append(File.generated(config, name, content=content))
    files.remove(files.src_uris["verdicts.md"])  # systems/index.md is the same list, with links
    pages = files.documentation_pages()
    indexes = {file.src_uri: file.content_string for file in pages if file.src_uri.endswith("index.md")}
    config.nav = expand(config.nav, sorted(file.src_uri for file in pages), indexes)
    return files


def expand(nav: list[Any], names: list[str], indexes: dict[str, str]) -> list[Any]:
    """Return the navigation with patterns replaced by the pages that match and are not named elsewhere."""
    named = set(re.findall(r"[\w/-]+\.md", repr(nav)))
    found: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            ((title, inside),) = item.items()
            found.append({title: expand(inside, names, indexes) if isinstance(inside, list) else inside})
        elif "*" in item:
            matching = sorted(fnmatch.filter(names, item), key=place_in_index(item, indexes))
            found += [name for name in matching if name not in named and name.count("/") == item.count("/")]
        else:
            found.append(item)
    return found


def place_in_index(pattern: str, indexes: dict[str, str]) -> Callable[[str], tuple[int, str]]:
    """Return a key that sorts pages by where their folder's index.md links them, then by name."""
    text = indexes.get(f"{Path(pattern).parent}/index.md", "")
    return lambda name: (text.find(f"({Path(name).name})"), name)


def pages_from_elsewhere() -> dict[str, str]:
    """Return the repository's pages outside docs/, their links turned to the site."""
    return {
        page: relinked((ROOT / source).read_text(), source, page)
        for source, page in ELSEWHERE.items()
        if not source.startswith("docs/") and (ROOT / source).exists()
    }


def relinked(text: str, source: str, page: str) -> str:
    """Return a page with its links to files and packages of the repository turned to pages of the site.

    Links in docs/ work where the repository is read: they name CONTRIBUTING.md and ../testbed/losses, whose
    pages are made here. source: where the text lies in the repository. page: where it lies in the site.
    """

    def turned(match: re.Match[str]) -> str:
        place = in_site(posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1])))
        return (
            f"]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{match[2]}" if place else match[0]
        )

    return re.sub(r"\]\((?![a-z]+:)([^)#\s]+)((?:#[^)\s]*)?[)\s])", turned, text)


def in_site(path: str) -> str:
    """Return the page of a path of the repository, "" where it has none."""
    if path in ELSEWHERE or path.startswith("docs/"):
        return ELSEWHERE.get(path) or path.removeprefix("docs/")
    return f"reference/{path.replace('/', '.')}.md" if (ROOT / path / "__init__.py").exists() else ""


def decisions_page() -> dict[str, str]:
    """Return the list of decisions."""
    rows = []
    for path in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        title = path.read_text().split("\n", 1)[0].lstrip("# ")
        rows.append(f"- [{title}]({path.name})")
    text = "# Decisions\n\nWhat was decided, why, and what was rejected.\n\n" + "\n".join(rows) + "\n"
    return {"decisions/index.md": text}


def gallery() -> dict[str, str | bytes]:
    """Return the gallery and its pictures, drawn from the committed tables."""
    from analysis.tables.committed import load_committed
    from paper_figs.save_figures import FIGURES, draw, render, style

    found: dict[str, str | bytes] = {}
    lines = [
        "# Gallery\n",
        f"{len(DRAWN)} of {len(FIGURES)} figures, drawn from the committed tables with this site. "
        "`testbed list figures` has all, and `testbed evidence figures NAME` draws one as PDF and PNG.\n",
        '<div class="gallery" markdown>\n',
    ]
    for name in DRAWN:
        promises = FIGURES[name].promises
        table = load_committed([promises["data"]])[promises["data"]].frame
        with style():
            found[f"gallery/{name}.png"] = render(draw(name, table), "png", dpi=130)
        said = f"{promises['caption']} {promises['counted'](table)}".rstrip()
        picture = f"[![{name}](gallery/{name}.png)](gallery/{name}.png)"
        text = f"<figcaption>{escape(said)}</figcaption>"
        lines.append(f"<figure markdown>\n{picture}\n{text}</figure>\n")
    return {"gallery.md": "\n".join([*lines, "</div>\n"]), **found}


def evidence_pages() -> dict[str, str]:
    """Return the pages of experiments by area and of systems, from the table of verdicts."""
    from analysis.judging.verdicts import by_claim
    from analysis.pages import experiment_page, systems_page

    judged = by_claim()
    return {**experiment_page.pages(judged), **systems_page.pages(judged)}


def reference_pages() -> dict[str, str]:
    """Return one page of the API reference per package, two for the largest, and the list of them."""
    pages, rows = {}, []
    for package in packages():
        modules = public_modules(package)
        name = ".".join(package.relative_to(ROOT).parts)
        for start in range(0, len(modules), MODULES):
            page = name if not start else f"{name}-{start // MODULES + 1}"
            text = package_page(name, package, modules[start : start + MODULES])
            pages[f"reference/{page}.md"] = text.replace(f"# {name}", f"# {page}", 1)
            rows.append(f"| [{page}]({page}.md) | {first_line(package / '__init__.py')} |")
    head = (
        "# API reference\n\nEverything public, one page per package.\n\n| package | what it is |\n|---|---|\n"
    )
    pages["reference/index.md"] = head + "\n".join(rows) + "\n"
    return pages


def packages() -> list[Path]:
    """Return every package but those of experiments, which have pages of their own; the top ones first."""
    found = [path.parent for top in TOP for path in sorted((ROOT / top).rglob("__init__.py"))]
    found = [path for path in found if "experiments" not in path.parts]
    return sorted(found, key=lambda path: (TOP.index(path.relative_to(ROOT).parts[0]), path))


def public_modules(package: Path) -> list[Path]:
    """Return the modules of a package that hold something public."""
    paths = [
        path
        for path in sorted(package.glob("*.py"))
        if not path.name.startswith("_") or path.name == "__init__.py"
    ]
    return [path for path in paths if has_public(path)]


def has_public(path: Path) -> bool:
    """Return whether a module defines anything whose name does not begin with an underscore."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return any(isinstance(node, kinds) and node.name[0] != "_" for node in ast.parse(path.read_text()).body)


def package_page(name: str, package: Path, modules: list[Path]) -> str:
    """Return the page of one package."""
    lines = [f"# {name}", ""]
    if package / "__init__.py" not in modules:
        lines += [first_line(package / "__init__.py"), ""]
    for path in modules:
        full = name if path.name == "__init__.py" else f"{name}.{path.stem}"
        lines += [f"## {full}", "", f"::: {full}", ""]
    return "\n".join(lines)


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n", 1)[0]


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Weigh a page for the search, turn its links, add the blank lines that Python-Markdown wants."""
    name = page.file.src_uri
    boosts = [boost for pattern, boost in BOOSTS.items() if fnmatch.fnmatch(name, pattern)]
    page.meta |= {"search": {"boost": boosts[0]}}
    page.meta |= {"hide": ["toc"]} if any(fnmatch.fnmatch(name, pattern) for pattern in WIDE) else {}
    text = with_seeds(markdown) if name == "arena.md" else markdown
    text = re.sub(r"(?m)^(<!-- [^\n]* -->)\n(?!\n)", r"\1\n\n", relinked(text, f"docs/{name}", name))
    return re.sub(r"(?m)(?<!\n\n)^(<!-- [^\n]* -->)$", r"\n\1", text)


def with_seeds(markdown: str) -> str:
    """Return the arena's page with finals of every seed and curves, for docs/assets/tables.js to draw."""
    from analysis.arena.page import curves, seeds
    from analysis.arena.table import load
    from analysis.arena.tasks import lag_from

    frame = load()

    def drawn(at: re.Match[str]) -> str:
        task, lag = at[1], lag_from(at[2])
        lines = curves(task, lag)
        return f'{at[0]} data-finals="{seeds(frame, task, lag)}"' + (
            f' data-curves="{lines}"' if lines else ""
        )

    return re.sub(r'data-task="(\S+)" data-lag="(\S+)"', drawn, markdown)
