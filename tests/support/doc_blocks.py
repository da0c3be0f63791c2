"""The code blocks of README and docs, and what the line above each says about running it.

A block without a language, or in bash, holds commands; one in python is executed; all blocks of a page run in
their order in one folder, its Python in one namespace. A comment right above a block says what differs:

    <!-- not run: REASON -->       it cannot run in a test
    <!-- run by tests/FILE.py -->  that test runs it in its own way
    <!-- run with: WORDS -->       `testbed run` or `tune` really runs, with these words; else --dry-run
    <!-- file: NAME -->            it is written to this file for the blocks that follow
    <!-- output -->                what the block before prints, exactly; a line "…" stands for any lines;
                                   the language `output` says the same
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMANDS, PYTHON = ("", "bash", "sh"), ("python",)
MARKER = re.compile(r"^<!-- (not run|run by|run with|file|output)(?::? (.*?))? -->$")


@dataclass(frozen=True)
class Block:
    """One fenced block: its page, the line it starts at, its language, its marker, its text."""

    page: str
    line: int
    language: str
    marker: str
    words: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[list[str]]:
        """Return the words of every command of the block; a backslash joins lines."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True) for line in lines if line.strip()]


def pages() -> list[Path]:
    """Return README, CONTRIBUTING and every page of docs."""
    docs = ROOT / "docs"
    top = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md"]
    return [*top, *sorted(docs.rglob("*.md"))]


def blocks(path: Path, root: Path = ROOT) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    lines = path.read_text().splitlines()
    number, above = 0, ""
    while number < len(lines):
        line = lines[number]
        if line.lstrip().startswith("```"):
            end = next(n for n in range(number + 1, len(lines)) if lines[n].strip() == "```")
            indent = len(line) - len(line.lstrip())
            text = "\n".join(inside[indent:] for inside in lines[number + 1 : end]) + "\n"
            marker = MARKER.match(above)
            kind, words = (marker[1], marker[2] or "") if marker else ("", "")
            language, page = line.strip()[3:], str(path.relative_to(root))
            kind = "output" if language == "output" else kind
            found.append(Block(page, number + 1, language, kind, words, text))
            number, above = end, ""
        elif line.strip():
            above = line.strip()
        number += 1
    return found


def all_blocks() -> list[Block]:
    """Return the blocks of all pages."""
    return [block for path in pages() for block in blocks(path)]
