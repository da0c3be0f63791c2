"""Write docs/stacks/ from the tables: one page per stack, and an index with common traps."""

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.pages.markdown import table, text
from testbed.objectives import objective
from testbed.stacks import Is, Key, Rule, Stack, Their, When, stacks

WRITTEN = "<!-- Written by `testbed evidence pages atlas` from testbed/stacks/: do not edit. -->"


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    return {"index.md": index(), **{f"{name}.md": page(stack) for name, stack in stacks().items()}}


def index() -> str:
    divided = sorted(name for name in objective if objective[name].promises.get("on_policy") == "1/T")
    rows = "\n".join(
        f"| [{s.title}]({name}.md) | {len(s.keys)} | {len({r.name for r in s.objectives})} | {s.source} |"
        for name, s in stacks().items()
    )
    return text(
        "stacks",
        written=WRITTEN,
        rows=rows,
        divided=", ".join(f"`{name}`" for name in divided),
        weights="testbed.inspection.effective_weights.correction_weights",
        mask="testbed.inspection.kept_mask.kept_mask",
    )


def page(stack: Stack) -> str:
    sections = [
        (
            f"# {stack.title}\n\n{WRITTEN}\n\nSource: {stack.source}.\n\n```text\ntestbed objectives from "
            f"{stack.name} KEY=VALUE …\n```\n\nSettings that are not named have the defaults below; `A ← b` "
            "reads A from their setting b. In every table the first row that fits applies; of the terms all "
            "rows that fit apply.\n"
        ),
        "## Traps\n\n" + "\n".join(f"- {trap}" for trap in stack.traps) + "\n",
        "## Settings\n\n"
        + table(("setting", "default", "here"), [_key(stack, key) for key in stack.keys])
        + "\n",
        _rules("Objective", stack.objectives, "objective"),
        _rules("Aggregation", stack.aggregations, "aggregation"),
        _rules("Advantage", stack.advantages, "advantage"),
        _rules("Anchor", stack.anchors, "anchor"),
        _rules("Terms", stack.terms, "term"),
    ]
    if stack.refusals:
        refused = [f"- {_when(refusal.when)}: {refusal.why}" for refusal in stack.refusals]
        sections.append("## Not expressed\n\n" + "\n".join(refused) + "\n")
    return "\n".join(section for section in sections if section)


def _rules(title: str, rules: Sequence[Rule], kind: str) -> str:
    if not rules:
        return ""
    noted = any(_remark(rule) for rule in rules)
    head = ("settings", kind, "hyperparameters", *(("remark",) if noted else ()))
    rows = [
        (
            _when(rule.when) or "always",
            f"`{rule.name}`",
            _arguments(rule),
            *((_remark(rule),) if noted else ()),
        )
        for rule in rules
    ]
    return f"## {title}\n\n" + table(head, rows) + "\n"


def _remark(rule: Rule) -> str:
    parts = []
    if rule.aggregation:
        parts.append(f"always `{rule.aggregation}`{f', length {rule.length:g}' if rule.length else ''}")
    if rule.denominator == "kept":
        parts.append("denominator `kept`")
    return "; ".join([*parts, *([rule.note] if rule.note else [])])


def _arguments(rule: Rule) -> str:
    given: Mapping[str, Any] = dict(rule.args)
    if isinstance(rule.coefficient, Their):
        given = {"coefficient": rule.coefficient, **given}
    if isinstance(rule.length, Their) or (rule.length and not rule.aggregation):
        given = {**given, "length": rule.length}
    return ", ".join(f"{name} {_argument(value)}" for name, value in given.items()) or "–"


def _argument(value: Any) -> str:
    if not isinstance(value, Their):
        return f"= {value}"
    words = [value.words] if value.words else []
    words += [] if value.absent is None else [f"{value.absent:g} where it is null"]
    return f"← `{value.key}`{' (' + '; '.join(words) + ')' if words else ''}"


def _when(when: When) -> str:
    return ", ".join(_condition(name, want) for name, want in when.items())


def _condition(name: str, want: Any) -> str:
    if isinstance(want, Is):
        return f"`{name}` {want.words}" if want.words in ("set", "not set") else f"`{name}` is {want.words}"
    if isinstance(want, tuple):
        return f"`{name}` " + " or ".join(
            each.words if isinstance(each, Is) else f"`{each}`" for each in want
        )
    return f"`{name}={str(want).lower() if isinstance(want, bool) else want}`"


def _key(stack: Stack, key: Key) -> tuple[str, str, str]:
    rules = (*stack.objectives, *stack.aggregations, *stack.advantages, *stack.anchors, *stack.terms)
    args = [pair for rule in rules for pair in rule.args.items()]
    ours = dict.fromkeys(name for name, value in args if isinstance(value, Their) and value.key == key.name)
    parts = [", ".join(f"`{name}`" for name in ours)] if ours else []
    if any(rule.coefficient.key == key.name for rule in rules if isinstance(rule.coefficient, Their)):
        parts.append("a term's coefficient")
    if any(rule.length.key == key.name for rule in rules if isinstance(rule.length, Their)):
        parts.append("the aggregation's length")
    if key.name == stack.passes:
        parts.append("`passes`")
    conditions = [rule.when for rule in rules] + [refusal.when for refusal in stack.refusals]
    if any(key.name in when for when in conditions):
        parts.append("selects")
    if key.note:
        parts.append(key.note)
    where = f"`{key.name}`" + (f" ({key.path})" if key.path else "")
    return where, _default(key), "; ".join(parts)


def _default(key: Key) -> str:
    if key.by is not None:
        given = ", ".join(f"{value} for {name}" for name, value in key.by[1].items())
        return f"{given}, else `{key.otherwise}`" if key.default is None else f"{given}, else {key.default}"
    if key.default is None:
        return f"`{key.otherwise}`" if key.otherwise else "null"
    return str(key.default).lower() if isinstance(key.default, bool) else f"{key.default}"
