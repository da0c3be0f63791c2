"""Sources of objectives as BibTeX: the authors, year, arXiv number or repository that a source names."""

import re
from collections.abc import Iterable

ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")
PAPER = re.compile(r"^(?:.*?: )?(?P<who>[^:;]+?) \((?P<year>\d{4})\)(?P<rest>.*)$")
REPOSITORY = re.compile(
    r"^(?P<name>[\w.-]+/[\w.-]+)(?: (?P<version>[0-9a-f]{7,}|\d[\d.]*))?"
    r"(?: (?P<date>\d{4}-\d\d(?:-\d\d)?))?(?P<rest>,.*|)$"
)


def bibtex(sources: Iterable[str]) -> str:
    """Return one entry per distinct work in the sources, separated by empty lines.

    Sources are those of the registry, parts divided by "; ": "Authors (year), arXiv:ID, place" becomes @misc
    with eprint, "owner/repository commit date, file" @software, anything else a @misc with a note.
    """
    entries: dict[str, str] = {}
    for part in (part for source in sources for part in re.split(r"; |(?<=\d) and (?=arXiv:)", source)):
        key, kind, fields = _entry(part.strip())
        lines = [f"  {name} = {{{_escaped(value, name)}}}," for name, value in fields.items() if value]
        entries.setdefault(key, "\n".join([f"@{kind}{{{key},", *lines, "}"]))
    return "\n\n".join(entries.values())


def _entry(part: str) -> tuple[str, str, dict[str, str]]:
    """Return key, kind and fields of one work."""
    found = ARXIV.search(part)
    eprint = found[1] if found else ""
    where = {"eprint": eprint, "archiveprefix": "arXiv", "url": f"https://arxiv.org/abs/{eprint}"}
    online = where if eprint else {}
    if (paper := PAPER.match(part)) is not None:
        who = paper["who"].removesuffix(" et al.")
        key = f"arxiv-{eprint}" if eprint else _slug(f"{who} {paper['year']}")
        note = ARXIV.sub("", paper["rest"]).strip(" ,")
        named = _named(who, who != paper["who"])
        return key, "misc", {**named, "year": paper["year"], **online, "note": note}
    if (code := REPOSITORY.match(part)) is not None and not eprint:
        fields = {"title": code["name"], "version": code["version"] or "", "date": code["date"] or ""}
        fields |= {"url": f"https://github.com/{code['name']}", "note": code["rest"].strip(" ,")}
        return _slug(f"{code['name']} {fields['version']}"), "software", fields
    note = "" if part == f"arXiv:{eprint}" else part
    return f"arxiv-{eprint}" if eprint else _slug(part)[:40], "misc", online | {"note": note}


def _named(who: str, others: bool) -> dict[str, str]:
    """Return the authors, or the title if the text names the work: three words or more without a comma."""
    pair = re.fullmatch(r"\S+ and \S+", who)
    if not others and not pair and "," not in who and "&" not in who and len(who.split()) > 2:
        return {"title": who}
    return {"author": " and ".join(re.split(r", | & ", who)) + " and others" * others}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _escaped(text: str, field: str) -> str:
    """Return text with LaTeX's special characters escaped; addresses stay as they are."""
    return text if field in ("url", "eprint") else re.sub(r"([&%$#_{}])", r"\\\1", text)
