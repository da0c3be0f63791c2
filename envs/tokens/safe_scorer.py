"""Run reasoning-gym's generators and scorers so that no sampled text can raise, print, reseed or execute.

Nine of its data sets pass the answer to `eval`, or to sympy's `parse_expr`, which also evaluates it. A
policy's samples are untrusted text, so such scorers receive only literals and bounded arithmetic.
"""

import ast
import contextlib
import inspect
import io
import math
import random
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.random.mtrand import get_bit_generator, set_bit_generator

LONGEST_LITERAL = 4000
# sympy may simplify an answer: within these limits the worst expressions tried took about a second, but
# five functions to the power 12 took more than 40.
LONGEST_EXPRESSION = 200
LARGEST_EXPONENT = 12
MOST_CALLS = 3
FUNCTIONS = frozenset(
    {"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "ln", "sqrt"}
)
_PYTHON = re.compile(r"\b(?:eval|exec)\(")
_SYMPY = re.compile(r"\b(?:parse_expr|sympify)\(")
_EXPONENT = re.compile(r"\d\.?[eE][-+]?\d")
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_PLAIN = (ast.Expression, ast.UnaryOp, ast.UAdd, ast.USub, ast.Load, *_ARITHMETIC)


@contextlib.contextmanager
def isolated(*, silent: bool = False) -> Iterator[None]:
    """Context in which Python's and NumPy's global random states start from seed 0 and warnings are dropped.

    Some generators draw from the global states, one reseeds NumPy's; leaving restores both. Some print;
    `silent` discards it, for all threads, so keep the block short.
    """
    python_state, bit_generator = random.getstate(), get_bit_generator()
    random.seed(0)
    set_bit_generator(np.random.MT19937(0))
    try:
        quiet = contextlib.redirect_stdout(io.StringIO()) if silent else contextlib.nullcontext()
        with quiet, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(python_state)
        set_bit_generator(bit_generator)


class SafeScorer:
    """score(answer, item) in [0, 1] of a reasoning-gym data set, for any text.

    Without `partial_credit` scores below 1 become 0. `errors` counts scorers that raised or returned no
    number, `refused` counts answers that a data set would evaluate but that are not plain arithmetic; both
    score 0.
    """

    def __init__(self, dataset: Any, partial_credit: bool) -> None:
        self.dataset, self.partial_credit = dataset, partial_credit
        self.errors = 0
        self.refused = 0
        self._evaluates: dict[type, str] = {}

    def score(self, answer: str, item: Mapping[str, Any]) -> float:
        """The reward of one answer; call it inside `isolated()`."""
        if answer != item["answer"] and not self._harmless(answer, item):
            self.refused += 1
            return 0.0
        try:
            score = float(self.dataset.score_answer(answer, item))
        except Exception:  # any failure of a foreign scorer on arbitrary text means a wrong answer
            self.errors += 1
            return 0.0
        if math.isnan(score):
            self.errors += 1
            return 0.0
        if self.partial_credit:
            return min(max(score, 0.0), 1.0)
        return 1.0 if score >= 1.0 else 0.0

    def evaluation(self, item: Mapping[str, Any]) -> str:
        """Evaluator in the scorer of this item: "sympy", "python", or "" for none."""
        owner = self.dataset
        if hasattr(owner, "datasets"):  # a composite forwards to one of its parts
            owner = owner.datasets[item["metadata"]["source_dataset"]]
        kind = type(owner)
        if kind not in self._evaluates:
            try:
                source = inspect.getsource(kind.score_answer)
            except OSError:  # no source to read: assume the worst
                source = "parse_expr("
            plain = "python" if _PYTHON.search(source) else ""
            self._evaluates[kind] = "sympy" if _SYMPY.search(source) else plain
        return self._evaluates[kind]

    def _harmless(self, answer: str, item: Mapping[str, Any]) -> bool:
        evaluation = self.evaluation(item)
        if not evaluation:
            return True
        # Text that Python cannot parse cannot run in eval either. But sympy first rewrites its input ("9!"),
        # so there unparsable text is not harmless.
        return _is_plain(answer.strip(), unparsable=evaluation == "python")


def _is_plain(text: str, *, unparsable: bool) -> bool:
    """True for literals and bounded arithmetic; `unparsable` is the result for text that is not Python."""
    # With a backslash before the last line break, text runs although its stripped form does not parse;
    # the integer of 1e99999999 has 100 million digits.
    if len(text) > LONGEST_LITERAL or "\\" in text or _EXPONENT.search(text):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return unparsable
    except (RecursionError, MemoryError):
        return False
    nodes = list(ast.walk(tree))
    operates = any(isinstance(node, ast.BinOp) for node in nodes)
    if operates and len(text) > LONGEST_EXPRESSION:
        return False
    calls = sum(isinstance(node, ast.Call) for node in nodes)
    return calls <= MOST_CALLS and all(_is_plain_node(node, operates) for node in nodes)


def _is_plain_node(node: ast.AST, operates: bool) -> bool:
    if isinstance(node, ast.Constant):
        # "a" * 10**9 is a memory bomb, so sequences and operators do not mix.
        return isinstance(node.value, int | float | str) and not (operates and isinstance(node.value, str))
    if isinstance(node, ast.List | ast.Tuple):
        return not operates
    if isinstance(node, ast.Name):
        return len(node.id) == 1 or node.id == "pi" or node.id in FUNCTIONS
    if isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        variables = any(
            isinstance(n, ast.Name) and n.id not in FUNCTIONS for a in node.args for n in ast.walk(a)
        )
        return named and variables and len(node.args) == 1 and not node.keywords
    if isinstance(node, ast.BinOp):
        return not isinstance(node.op, ast.Pow) or _is_small_power(node)
    return isinstance(node, _PLAIN)


def _is_small_power(node: ast.BinOp) -> bool:
    """True for base ** c with a constant |c| <= 12 and no other power in the base."""
    exponent = node.right.operand if isinstance(node.right, ast.UnaryOp) else node.right
    if not isinstance(exponent, ast.Constant) or not isinstance(exponent.value, int | float):
        return False
    nested = any(isinstance(n, ast.Pow) for n in ast.walk(node.left))
    return abs(exponent.value) <= LARGEST_EXPONENT and not nested
