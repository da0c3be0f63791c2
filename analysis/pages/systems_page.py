"""Pages of the systems of the literature: one each, a list, and the small index in the repository."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.experiment import EXPERIMENTS, Experiment, Part
from analysis.judging.claims import CLAIMS
from analysis.judging.needed import OPEN, decides_already, units_to_decide, why_not
from analysis.judging.source_drift import in_words
from analysis.judging.system_list import System, asked, counts, status, systems, trials, world
from analysis.judging.table_gates import NOT_RECORDED
from analysis.judging.verdicts import Row
from analysis.pages.experiment_page import BLOCK, commands, effect, filters, table
from analysis.pages.markdown import text

FINDINGS = ("enumerated", "small world", "toy training", "real model")


def facts(
    judged: Mapping[str, Row], experiments: Mapping[str, Experiment] = EXPERIMENTS, only: str = ""
) -> list[dict[str, Any]]:
    """Return the facts about every system, in the order of the list, in JSON types.

    judged: rows of the table of verdicts by claim. only: the name of one system; "" takes all, in seconds.
    """
    tried = trials(experiments)
    asked = {only: systems()[only]} if only else systems()
    return [_facts(each, tried[name], judged, experiments) for name, each in asked.items()]


def _facts(
    system: System,
    tried: Mapping[str, Part],
    judged: Mapping[str, Row],
    experiments: Mapping[str, Experiment],
) -> dict[str, Any]:
    return {
        "n": system.n,
        "name": system.name,
        "kind": system.kind,
        "says": system.says,
        "status": status(system, judged),
        "world": world(system, judged),
        "central": [_claim(judged[name]) for name in system.central],
        "without": system.without,
        "would show": system.would_show,
        "drift of the source": in_words(system.name),
        "a fair test needs": asked().get(system.name, ""),
        "experiments": [
            {
                "name": name,
                "question": experiments[name].question,
                "differs": experiments[name].differs,
                "part": part.what,
                "claims": [_claim(judged[claim]) for claim in part.claims if claim in judged],
                "commands": commands(experiments[name]),
            }
            for name, part in tried.items()
        ],
    }


def _claim(row: Row) -> dict[str, Any]:
    return {
        "claim": row["claim"],
        "statement": CLAIMS[row["claim"]].promises["statement"] if row["claim"] in CLAIMS else "",
        "effect": effect(row),
        **{name: row[name] for name in ("asks", "verdict", "kind", "gates", "note")},
        "needs": needs(row),
        "drift": next((each[7:] for each in row["checked"].split("; ") if each.startswith("drift: ")), ""),
    }


def needs(row: Row) -> str:
    """Return a sentence on the seeds that would decide an undecided claim and why they are not run, or ""."""
    if row["verdict"] not in OPEN:
        return ""
    if decides_already(row):
        return "its interval decides already, the bets of its runs do not yet"
    units = units_to_decide(row)
    many = f"about {units:,} would decide it" if units else "no number of seeds would"
    reason = why_not(row)
    return f"{many}; not spent: {reason}" if reason else many


def index(judged: Mapping[str, Row], link: str = "") -> str:
    """Return the small index, a line a system; link: of a system's page, "{n}.md", or "" without pages."""
    rows = [_facts(each, {}, judged, {}) for each in systems().values()]
    curve, drift = (
        sum(f"{gate}: {NOT_RECORDED}" in row["checked"] for row in judged.values())
        for gate in ("long enough", "drift")
    )
    lines = [
        text("systems"),
        summary(judged),
        "",
        f"Claims by kind of evidence: {kinds_line(judged)}.",
        "",
        f"Not recorded, so that the gate could not fail: for {curve} claims on finals whether the gap was "
        f"closing when training stopped; for {drift} claims what their lag did to KL and clip share "
        "(decisions/013-long-enough-and-drift.md); `testbed show CLAIM` says why.\n",
    ]
    lines += [
        "| n | system | its source claims | status | effect on the central claim | world |",
        "|---" * 6 + "|",
    ]
    return "\n".join(lines + [_line(row, link) for row in rows]) + "\n"


def summary(judged: Mapping[str, Row]) -> str:
    """Return the line that counts systems by status, which README has too."""
    rows = [_facts(each, {}, judged, {}) for each in systems().values()]
    found = ", ".join(f"{number} {word}" for word, number in counts(rows).items() if number)
    return f"Central claims of {len(rows)} systems: {found}."


def findings(judged: Mapping[str, Row]) -> dict[str, dict[str, int]]:
    """Return the number of claims by kind of evidence and verdict, a failed gate under "invalid".

    Identities are left out: they hold in every world, so that they are tests and no findings.
    """
    found: dict[str, dict[str, int]] = {kind: {} for kind in FINDINGS}
    for row in judged.values():
        if row["kind"] in found:
            word = str(row["verdict"]).partition(":")[0]
            found[row["kind"]][word] = found[row["kind"]].get(word, 0) + 1
    return found


def kinds_line(judged: Mapping[str, Row]) -> str:
    """Return the counts of verdicts by kind of evidence in one line, never one sum over kinds."""
    return "; ".join(
        f"{kind}: " + (", ".join(f"{n} {word}" for word, n in sorted(words.items())) or "none")
        for kind, words in findings(judged).items()
    )


def _line(row: Mapping[str, Any], link: str) -> str:
    name = f"[{row['name']}]({link.format(**row)})" if link else row["name"]
    found = "; ".join(
        f"`{each['claim']}` {each['effect']} ({each['asks']}) {_word(each)}" for each in row["central"]
    )
    found = found or row["without"] or "–"
    cells = (str(row["n"]), name, row["says"], f"**{row['status']}**", found, row["world"] or "–")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _word(claim: Mapping[str, Any]) -> str:
    return f"{claim['verdict']} ({claim['needs']})" if claim["needs"] else str(claim["verdict"])


def pages(judged: Mapping[str, Row]) -> dict[str, str]:
    """Return the text of the list of systems and of each system's page, by file."""
    rows = facts(judged)
    text, table_, rest = re.split(
        r"(?ms)^(\| n .*\|)$", index(judged, "{n}.md").replace("(theory/", "(../theory/")
    )
    fields = filters("status world", table_ + rest)
    block = '<div class="block sortable claims systems" markdown>'
    text = f"{text}{fields}\n{block}\n\n{table_}\n\n</div>{rest}"
    return {"systems/index.md": text} | {f"systems/{row['n']}.md": _page(row, judged) for row in rows}


def _page(row: Mapping[str, Any], judged: Mapping[str, Row]) -> str:
    lines = [f"# {row['n']}. {row['name']}\n", f"Its source claims: {_sentence(row['says'])}\n"]
    lines.append(f"**{row['status'].capitalize()}**{', ' + row['world'] if row['world'] else ''}. ")
    lines += [_sentence(row["without"])] if row["without"] else []
    if row["central"]:
        lines += ["", _claims(row["central"], judged)]
        lines += [f"`{each['claim']}`: {each['needs']}.\n" for each in row["central"] if each["needs"]]
    lines.append(f"A decisive experiment: {_sentence(row['would show'])}")
    if row["drift of the source"]:
        lines += [f"\nDrift in its source: {_sentence(row['drift of the source'])}"]
        lines += [f"`{one['claim']}`: {_sentence(one['drift'])}" for one in row["central"] if one["drift"]]
    if needed := row["a fair test needs"]:
        lines.append(f"\nA fair test of the central claim would need {needed}")
    for each in row["experiments"]:
        lines += ["", f"## {each['name']}\n", f"{each['question']} "]
        lines += [f"Here: {each['differs']}. "] if each["differs"] else []
        lines += [f"What it judges: {_sentence(each['part'])} "] if each["part"] else []
        lines += ["", _claims(each["claims"], judged)]
        lines.append("Commands: " + ", ".join(f"`{command}`" for command in each["commands"]))
    return "\n".join(lines) + "\n"


def _claims(rows: Sequence[Mapping[str, Any]], judged: Mapping[str, Row]) -> str:
    return f"{BLOCK}{table(tuple(row['claim'] for row in rows), judged)}\n\n</div>\n"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."
