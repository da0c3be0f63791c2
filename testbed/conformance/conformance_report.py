"""Reports of identify and conform, as text and as one small page, both made from the JSON."""

from html import escape
from typing import Any

MARKS = {"holds": "ok  ", "fails": "FAIL", "warning": "warn", "does not apply": "-   "}
OTHERS = 6


def in_words(found: dict[str, Any]) -> list[str]:
    """Return the report of either command as lines of text."""
    return _conformance(found) if "properties" in found else _identity(found)


def _identity(found: dict[str, Any]) -> list[str]:
    lines = []
    if found["equals"]:
        lines.append(f"{found['loss']} equals {found['equals'][0]['words']}.")
        lines += [f"  also {each['words']}" for each in found["equals"][1:OTHERS]]
    else:
        lines.append(f"{found['loss']} is new: no entry of the catalogue has its weights. Nearest:")
        near = ((each, f"{each['agree']:6.1%} of tokens agree") for each in found["nearest"])
        lines += [f"  {agree}, cosine {each['cosine']:.4f}: {each['words']}" for each, agree in near]
        if found["counterexample"]:
            lines.append("The smallest batch on which it parts from the first of them:")
            lines += [f"  {line}" for line in found["counterexample"]["lines"]]
    reads = ", ".join(found["reads"]) or "nothing but log pi"
    lines.append(f"Layout: {found['layout']}. Its weights depend on {reads}; scope: {found['scope']}.")
    return [*lines, *found["notes"]]


def _conformance(found: dict[str, Any]) -> list[str]:
    lines = [f"{found['loss']} as {found['as']['words']}"]
    if found["searched"]:
        lines.append(f"Found by search, so not checked: {', '.join(found['searched'])}.")
    width = max(len(each["name"]) for each in found["properties"])
    first = True
    for each in found["properties"]:
        text = f"{MARKS[each['verdict']]}  {each['name']:<{width}}  {each['note'] or each['says']}"
        lines.append(text)
        if each["verdict"] == "fails" and first:
            first = False
            lines += [f"      {line}" for line in each["counterexample"]["lines"]]
        elif each["verdict"] == "warning" and each["counterexample"]:
            lines.append(f"      {each['counterexample']['lines'][0]}")
    failed = [each["name"] for each in found["properties"] if each["verdict"] == "fails"]
    lines.append(f"Fails: {', '.join(failed)}." if failed else "Every property holds.")
    return lines


STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1e293b}
table{border-collapse:collapse}
td{padding:.3rem .8rem;text-align:left;vertical-align:top;border-bottom:1px solid #cbd5e1}
.fails{color:#b91c1c;font-weight:600}.warning{color:#b45309}.holds{color:#15803d}code{font-size:.9em}
@media(prefers-color-scheme:dark){body{background:#0f172a;color:#e2e8f0}}
"""


def page(found: dict[str, Any]) -> str:
    """Return the report as a page that loads nothing from elsewhere."""
    if "properties" in found:
        rows = [
            f"<tr><td class='{escape(each['verdict'].split()[0])}'>{escape(each['verdict'])}</td>"
            f"<td>{escape(each['name'])}</td>"
            f"<td>{escape(each['note'] or each['says'])}{_example(each)}</td></tr>"
            for each in found["properties"]
        ]
        body = f"<p>{escape(in_words(found)[-1])}</p><table>{''.join(rows)}</table>"
        title = f"{found['loss']} as {found['as']['words']}"
    else:
        title = in_words(found)[0]
        body = "".join(f"<p>{escape(line)}</p>" for line in in_words(found)[1:])
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(found['loss'])}</title>"
        f"<style>{STYLE}</style><h1>{escape(found['loss'])}</h1><p>{escape(title)}</p>{body}</html>\n"
    )


def _example(each: dict[str, Any]) -> str:
    if not each["counterexample"]:
        return ""
    return "".join(f"<br><code>{escape(line)}</code>" for line in each["counterexample"]["lines"])
