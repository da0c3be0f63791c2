"""Arguments are held against what takes them: names, numbers, truth values, choices."""

from typing import Literal

import pytest

from testbed.config.argument_types import wrong_arguments, wrong_types


def taker(*, count: int = 1, rate: float = 0.5, on: bool = True, kind: Literal["a", "b"] = "a", bare=2): ...


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"count": 2, "rate": 3, "on": False, "kind": "b", "bare": 0.5}, ""),
        ({"count": 2.5}, "it has count = 2.5 (float), expected a whole number."),
        ({"rate": "much"}, "it has rate = 'much' (str), expected a number."),
        ({"on": 1}, "it has on = 1 (int), expected true or false."),
        ({"kind": "c"}, "it has kind = 'c' (str), expected one of 'a', 'b'."),
        ({"bare": "x"}, "it has bare = 'x' (str), expected a number."),
        ({"cuont": 2}, "it has no argument 'cuont'. Did you mean 'count'? It has: count (int), "),
    ],
)
def test_an_argument_of_another_name_or_type_is_told_with_what_was_expected(given, words):
    found = list(wrong_arguments("it", taker, given))
    assert found[0].startswith(words) if words else found == []


def test_hidden_parameters_cannot_be_given_and_types_alone_pass_unknown_names():
    assert "no argument 'on'" in next(wrong_arguments("it", taker, {"on": True}, hidden=("on",)))
    assert list(wrong_types("it", taker, {"cuont": "x"})) == []
