"""Explain the registration of an objective in words, for the command line and docs/objectives.md."""

import inspect
import re
from typing import Any

from testbed.registry import Entry

READS = {
    "mu": "behavior log-probabilities (mu)", "anchor": "anchor log-probabilities",
    "ref": "reference log-probabilities (ref)", "adv": "advantages", "reward": "rewards", "group": "groups",
    "turn": "turns", "origin": "origins (rollout, expert, replay)",
}  # fmt: skip

LEVELS = {
    "none": "It uses no importance ratio.",
    "token": "Its importance ratio is the token's.",
    "prefix": "Its importance ratio is the product over the tokens up to this one.",
    "min_prefix": "Its importance ratio is the token's times the smallest one before it.",
    "sequence": "Its importance ratio is the product over the sequence.",
    "geometric": "Its importance ratio is the geometric mean over the sequence.",
    "turn": "Its importance ratio is the geometric mean over the tokens of a turn.",
    "power_mean": "Its importance ratio is a power mean over the sequence.",
}

SCOPES = {
    "token": "A token's weight depends on no other token.",
    "sequence": "A token's weight depends on its whole sequence.",
    "group": "A token's weight depends on its whole group: keep groups together in micro-batches.",
    "batch": "A token's weight depends on the whole batch: micro-batches must share its statistic.",
}


def facts(entry: Entry) -> dict[str, Any]:
    """Return all registered facts about an objective, for tables and JSON."""
    return {
        "name": entry.name,
        "base": entry.base,
        "family": entry.family,
        "formula": entry.formula,
        "source": entry.source,
        "defaults": entry.defaults,
        "promises": {key: _plain(value) for key, value in entry.promises.items()},
    }


def _plain(value: Any) -> Any:
    """Return a promise as text without memory addresses of functions or statistics."""
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return tuple(_plain(each) for each in value) if isinstance(value, tuple) else value


def in_words(entry: Entry) -> list[str]:
    """Return the promises as sentences; a function from a user's file has none."""
    promised = entry.promises
    if not promised:
        return ["It promises nothing: it is not registered, so no contract test has run on it."]
    reads = ", ".join(READS[each] for each in promised.get("reads", ()))
    bound = promised.get("max_weight")
    lines = [
        LEVELS[promised["ratio"]],
        f"Beside pi it reads {reads or 'nothing'}.",
        SCOPES[promised["scope"]],
        _on_policy(promised.get("on_policy")),
        ("It promises no bound on |w/A|." if bound is None else f"|w/A| is at most {bound}."),
    ]
    if {"adv", "reward"} & set(promised.get("reads", ())):
        never = "Its weight never has the sign opposite to the advantage's."
        lines.append(never if promised.get("sign", True) else "Its weight may push against the advantage.")
    if promised.get("detached"):
        lines.append("The weight is a constant for autograd.")
    if promised.get("penalty"):
        lines.append("Its gradient does not vanish where the advantage is 0.")
    if promised.get("keep"):
        lines.append("It drops tokens: their weight is 0.")
    return lines


def _on_policy(weight: Any) -> str:
    if weight is None:
        return "On-policy it promises no fixed multiple of the advantage."
    if weight == "1/T":
        return "On-policy every token of a sequence of T tokens has weight A/T."
    return f"On-policy every token has weight {'A' if weight == 1 else f'{brief(weight)} A'}."


def difference(entry: Entry) -> str:
    """Return the first sentence after the formula, which says how a variant differs from the paper.

    Skips sentences that only define a symbol ("d = anchor/mu.").
    """
    text = (inspect.getdoc(entry.function) or "").partition("\n\n")[2].partition("\n\n")[0]
    sentences = SENTENCE.split(" ".join(text.split()))
    return next((each for each in sentences if not DEFINITION.match(each)), sentences[0])


SENTENCE = re.compile(r"(?<=\.)(?<!Eq\.)(?<!Eqs\.)(?<!Sec\.)(?<!App\.)(?<!vs\.)\s+(?=[A-Z])")
"""The gap between a period and a capital letter, but not inside "Eq. A"."""
DEFINITION = re.compile(r"^[\w, ]{1,20} = ")


def settings(entry: Entry) -> str:
    """Return the hyperparameters with their defaults on one line."""
    return ", ".join(f"{name}={brief(value)}" for name, value in entry.defaults.items()) or "none"


def brief(value: Any) -> str:
    """Return a setting or a promised number as text, floats with four digits."""
    if value is inspect.Parameter.empty:
        return "(required)"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
