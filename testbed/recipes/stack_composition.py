"""Translate settings of a public stack into an equivalent recipe."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.errors import UserError, suggest, unknown
from testbed.recipes.composition import Recipe, Term, pairs
from testbed.stacks import NUMBER, Is, Key, Rule, Stack, Their, When, is_number, stack
from testbed.words import split

CONSTANTS = {"none": None, "null": None, "~": None, "true": True, "false": False}


@dataclass(frozen=True)
class Composition:
    """A stack's computation with given settings, in our names.

    given: the settings that were named. anchor: a name for `Run.anchor`. unused: given settings without
    effect here. notes: messages of the rules.
    """

    stack: str
    given: Mapping[str, Any]
    objective: str
    hyper: Mapping[str, Any]
    aggregation: str
    length: float
    denominator: str
    advantage: str
    advantage_args: Mapping[str, Any]
    terms: tuple[tuple[str, float, Mapping[str, Any]], ...]
    anchor: str
    passes: int
    unused: tuple[str, ...]
    notes: tuple[str, ...]

    def recipe(self) -> Recipe:
        """Return the composition as a recipe; `Run.anchor` sets an anchor that no recipe has."""
        return Recipe(
            self.advantage,
            self.objective,
            self.aggregation,
            length=self.length,
            advantage_args=pairs(**self.advantage_args),
            objective_args=pairs(**self.hyper),
            terms=tuple(Term(name, factor, pairs(**args)) for name, factor, args in self.terms),
            denominator="kept" if self.denominator == "kept" else "all",
            anchor="current" if self.anchor == "recompute" else "behavior",
            passes=self.passes,
        )

    def run_line(self, sweep: str = "staleness") -> str:
        """Return the command that trains with it."""
        words = ["testbed", "run", sweep, "recipe=stack", f"recipe_args.of={self.stack}"]
        if self.given:
            words.append(f"recipe_args.config={' '.join(f'{k}={_shown(v)}' for k, v in self.given.items())}")
        if self.anchor not in ("recompute", "behavior") and "anchor" in self.recipe().reads:
            words.append(f"anchor={self.anchor}")
        return shlex.join(words)


def compose(name: str, words: Sequence[str] = ()) -> Composition:
    """Return the composition that a stack runs with `key=value` words and its defaults for the rest.

    A setting may be written with its path or as a flag: actor.clip_ratio_high=0.28, --eps-clip-high=0.28.
    Raises UserError, with candidates, for an unknown stack, setting or choice, for a value of the wrong kind,
    and for settings that have no equivalent here.
    """
    chosen = stack(name)
    given = read(chosen, words)
    values, empty = resolved(chosen, given)
    for refusal in chosen.refusals:
        if holds(refusal.when, values):
            raise UserError(f"{_settings(refusal.when, values)} of {chosen.title}: {refusal.why}")
    used: set[str] = set()
    main = first("objective", chosen, chosen.objectives, values, used)
    mean = main if main.aggregation else first("aggregation", chosen, chosen.aggregations, values, used)
    gain = first("advantage", chosen, chosen.advantages, values, used)
    around = first("anchor", chosen, chosen.anchors, values, used)
    terms = [rule for rule in chosen.terms if holds(rule.when, values)]
    for rule in chosen.terms:
        used |= set(rule.when) | (_read(rule) if rule in terms else set())
    used |= {key.otherwise for key in chosen.keys if key.name in used and key.name in empty}
    return Composition(
        stack=chosen.name,
        given=given,
        objective=main.name,
        hyper=arguments(main.args, values),
        aggregation=mean.aggregation or mean.name,
        length=float(_value(mean.length, values)),
        denominator=main.denominator,
        advantage=gain.name,
        advantage_args=arguments(gain.args, values),
        terms=tuple((t.name, float(_value(t.coefficient, values)), arguments(t.args, values)) for t in terms),
        anchor=around.name,
        passes=int(values[chosen.passes]) if chosen.passes else 1,
        unused=tuple(name for name in given if name not in {*used, chosen.passes}),
        notes=tuple(dict.fromkeys(rule.note for rule in (main, mean, gain, around, *terms) if rule.note)),
    )


def read(chosen: Stack, words: Sequence[str]) -> dict[str, Any]:
    """Return the named settings with their values; raise UserError for an unknown one."""
    given: dict[str, Any] = {}
    for word in words:
        left, text = split(word, f"key=value, as {chosen.keys[0].name}={chosen.keys[0].default}")
        plain = left.lstrip("-").replace("-", "_")
        fitting = [key for key in chosen.keys if f".{plain}".endswith(f".{key.name}")]
        if not fitting:
            names = sorted(chosen.names)
            hint = suggest(plain, names)
            raise UserError(f"{chosen.title} has no setting '{left}' here.{hint} Known: {', '.join(names)}.")
        key = max(fitting, key=lambda key: len(key.name))
        if key.name in given:
            raise UserError(f"'{word}': '{key.name}' is given twice; name each setting once.")
        given[key.name] = checked(chosen, key, text)
    return given


def checked(chosen: Stack, key: Key, text: str) -> Any:
    """Return a value of the setting's kind; raise UserError for another kind or an unknown choice."""
    choices = choices_of(chosen, key.name)
    if text in choices:
        return text  # a text such as "none" or "2" stays text
    value = parsed(text)
    if "," in text or " " in text:
        raise UserError(
            f"{key.name} is '{text}', expected one value: lists of options are not composed here."
        )
    if key.text:
        return value if is_number(value) or value is None else text
    if value is None or (is_number(value) and NUMBER in wanted(chosen, key.name) and math.isfinite(value)):
        return value
    if choices:
        raise unknown(f"{key.name} of {chosen.title}", text, choices)
    switch = isinstance(key.default, bool)
    if isinstance(value, bool) != switch or not (switch or (is_number(value) and math.isfinite(value))):
        raise UserError(
            f"{key.name} is '{text}', expected {'true or false' if switch else 'a finite number'}."
        )
    return value


def parsed(text: str) -> Any:
    """Return a number, True, False or None if the text is one, else the text."""
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    if "_" in text:
        return text  # Python reads 1_2 as 12; here it is a range
    for read_as in (int, float):
        try:
            return read_as(text)
        except ValueError:
            continue
    return text


def choices_of(chosen: Stack, name: str) -> set[str]:
    """Return every valid text of a setting: those it is compared with, and its default."""
    found = wanted(chosen, name)
    for key in chosen.keys:
        if key.name == name and not key.text:
            found |= {key.default, *key.choices}
    return {each for each in found if isinstance(each, str)}


def wanted(chosen: Stack, name: str) -> set[Any]:
    """Return every value with which the stack's rules and refusals compare a setting."""
    sections = (chosen.objectives, chosen.aggregations, chosen.advantages, chosen.anchors, chosen.terms)
    rules = [rule for section in (*sections, chosen.refusals) for rule in section]
    wants = [rule.when[name] for rule in rules if name in rule.when]
    return {each for want in wants for each in (want if isinstance(want, tuple) else (want,))}


def resolved(chosen: Stack, given: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
    """Return the value of every setting, given or default, and the null ones that took another's value."""
    values = {key.name: given.get(key.name, key.default) for key in chosen.keys}
    for key in chosen.keys:
        # A group of settings is on if any of them is named.
        if key.name not in given and any(name.startswith(f"{key.name}.") for name in given):
            values[key.name] = True
        if key.by is not None and key.name not in given:
            values[key.name] = key.by[1].get(values[key.by[0]], key.default)
    empty = {key.name: key.otherwise for key in chosen.keys if values[key.name] is None and key.otherwise}
    return values | {name: values[other] for name, other in empty.items()}, set(empty)


def holds(when: When, values: Mapping[str, Any]) -> bool:
    """Return True if every setting has the wanted value."""
    return all(_fits(values[name], want) for name, want in when.items())


def _fits(value: Any, want: Any) -> bool:
    if isinstance(want, Is):
        return want.holds(value)
    if isinstance(want, tuple):
        return any(_fits(value, each) for each in want)
    # 1 == True in Python, but a number is no switch.
    return type(value) is type(want) and bool(value == want)


def first(what: str, chosen: Stack, rules: Sequence[Rule], values: Mapping[str, Any], used: set[str]) -> Rule:
    """Return the first rule that holds, and add settings read to `used`; UserError if none holds."""
    for rule in rules:
        used |= set(rule.when)
        if holds(rule.when, values):
            used |= _read(rule)
            return rule
    names = dict.fromkeys(name for rule in rules for name in rule.when)
    shown = ", ".join(f"{name}={_shown(values[name])}" for name in names)
    raise UserError(
        f"{chosen.title} with {shown} has no {what} here. docs/stacks/{chosen.name}.md lists the supported "
        "settings."
    )


def _read(rule: Rule) -> set[str]:
    values = (*rule.args.values(), rule.coefficient, rule.length)
    return {value.key for value in values if isinstance(value, Their)}


def arguments(args: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return our hyperparameters, with their values filled in."""
    return {name: _value(value, values) for name, value in args.items()}


def _value(value: Any, values: Mapping[str, Any]) -> Any:
    if not isinstance(value, Their):
        return value
    given = values[value.key]
    if given is None and value.absent is not None:
        return value.absent
    if given is None:
        raise UserError(f"{value.key} is not set, and has no default; give it: {value.key}=….")
    try:
        return value.change(given)
    except (ValueError, TypeError, ArithmeticError):
        raise UserError(f"{value.key} is '{given}', expected {value.words or 'a number'}.") from None


def _settings(when: When, values: Mapping[str, Any]) -> str:
    return " with ".join(f"{name}={_shown(values[name])}" for name in when)


def _shown(value: Any) -> str:
    """Write a value so that `read` can parse it."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
