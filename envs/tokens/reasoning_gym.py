"""Any data set of reasoning-gym as a token task over characters, with an end token."""

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.catalog import world
from envs.tokens.safe_scorer import SafeScorer, isolated
from envs.tokens.token_task import TokenTask, arguments, check_counts, miswritten

ASCII = "\n" + "".join(chr(c) for c in range(32, 127))
POOL = 4096
TRIES = 1000
# The default task suits models of a few thousand weights: sums of two terms of one or two digits, and a
# prompt without words, so that 14 characters suffice.
TINY_ARGS: Mapping[str, Any] = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
TINY_PROMPT = "{expression} ="
# Answers that `validate` scores besides the references: empty, blank, numbers, brackets, lists, long.
GARBAGE = ("", " ", "0", "-1", "?", "zzz", "[[", "{", ")(", "1/0", "[1, 2]", "a,b\nc", "9" * 40)


@dataclass(frozen=True)
class Item:
    """One problem: the prompt's text, the reference answer (None if there is none) and the raw entry."""

    prompt: str
    answer: str | None
    entry: Mapping[str, Any]


@dataclass(frozen=True)
class Report:
    """Results of `validate`: counts over `items` problems and over `garbage` nonsense answers to them."""

    dataset: str
    items: int
    without_answer: int
    reference_below_one: int
    garbage: int
    garbage_with_credit: int
    errors: int
    refused: int
    evaluates: str

    @property
    def trainable(self) -> bool:
        """True if every problem has a reference answer that scores 1."""
        return self.without_answer == 0 and self.reference_below_one == 0


@world("reasoning-gym")
class ReasoningGym(TokenTask):
    """Prompt and response are characters; the response ends with the end token, an unfinished one scores 0.

    The problems are a pool: items 0 .. size-1 of `dataset` built with `dataset_args` (seed 0 and size 4096 by
    default). A prompt is a uniform draw from it; one that does not fit `prompt_length`, or with an answer and
    end token that do not fit `response_length`, is counted in `rejected` and redrawn. Both lengths default to
    the longest of the first `survey` items. `prompt` is a format string over "question" and the fields of the
    item's metadata. `alphabet`: "ascii", or the characters themselves, or None for those of the surveyed
    items, plus all digits, and all printable ASCII if letters occur, because text is open-ended.
    """

    def __init__(
        self,
        *,
        dataset: str = "chain_sum",
        dataset_args: Mapping[str, Any] | str | None = None,
        prompt: str | None = None,
        prompt_length: int | None = None,
        response_length: int | None = None,
        alphabet: str | None = None,
        partial_credit: bool = False,
        survey: int = 64,
    ) -> None:
        tiny = dataset == "chain_sum" and dataset_args is None
        args = dict(TINY_ARGS) if tiny else arguments(dataset_args)
        self.dataset = dataset
        self.prompt = prompt if prompt is not None else TINY_PROMPT if tiny else "{question}"
        self.pool = int(args.setdefault("size", POOL))
        args.setdefault("seed", 0)
        self.scorer = SafeScorer(open_dataset(dataset, args), partial_credit)
        self.rejected: Counter[str] = Counter()
        self._items: dict[int, Item] = {}
        self._index: dict[str, int] = {}
        check_counts(survey=survey)
        known = prompt_length is not None and response_length is not None and alphabet is not None
        surveyed = [] if known else [self.item(i) for i in range(min(survey, self.pool))]
        characters = ASCII if alphabet == "ascii" else alphabet or own_characters(surveyed)
        if len(characters) < 2 or len(set(characters)) < len(characters):
            raise ValueError(f"alphabet must be two or more different characters, got {characters!r}.")
        self.symbols = (*characters, "<end>", "<pad>")
        self.end_token, self.pad_token = len(characters), len(characters) + 1
        self._token = {c: v for v, c in enumerate(characters)}
        self.prompt_length = prompt_length or max(len(item.prompt) for item in surveyed)
        self.response_length = response_length or self._longest_answer(surveyed) + 1
        check_counts(prompt_length=self.prompt_length, response_length=self.response_length)

    @property
    def score_errors(self) -> int:
        """Number of times a scorer raised or returned no number; each such response scored 0."""
        return self.scorer.errors

    def item(self, index: int) -> Item:
        """Problem `index` of the pool, generated once."""
        if index not in self._items:
            with isolated(silent=True):
                entry = self.scorer.dataset[index]
            fields = {**entry.get("metadata", {}), "question": entry["question"]}
            try:
                text = self.prompt.format_map(fields)
            except (KeyError, IndexError) as error:
                known = ", ".join(sorted(k for k in fields if isinstance(k, str)))
                raise ValueError(
                    f"prompt {self.prompt!r} asks for {error}, {self.dataset} has: {known}."
                ) from error
            except ValueError as error:
                raise ValueError(
                    f"prompt {self.prompt!r} is not a format string: {error}. Write {{{{ and }}}} for braces."
                ) from error
            self._items[index] = Item(text, entry["answer"], entry)
            self._index.setdefault(text, index)
        return self._items[index]

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """n problems drawn from the pool, padded on the left, [N, Q]."""
        prompt_NQ = np.full((n, self.prompt_length), self.pad_token, dtype=np.int64)
        for row_Q in prompt_NQ:
            token = self.encode(self._draw(rng).prompt)
            row_Q[self.prompt_length - len(token) :] = token
        return prompt_NQ

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """Return the data set's score of each finished response, 0 without an end token, [N]."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        reward_N, known = np.zeros(len(prompt_NQ)), dict[tuple[str, str], float]()
        items = [self._find(prompt_Q) for prompt_Q in prompt_NQ]
        with isolated():
            for n, item in enumerate(items):
                token = response_NT[n, mask_NT[n]].tolist()
                if not token or token[-1] != self.end_token or self.pad_token in token:
                    continue
                answer = "".join(self.symbols[v] for v in token[:-1])
                if (item.prompt, answer) not in known:
                    known[item.prompt, answer] = self.scorer.score(answer, item.entry)
                reward_N[n] = known[item.prompt, answer]
        return reward_N

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Return the answer with each character replaced with probability `noise`, then the end token."""
        answers = []
        for item in map(self._find, self.check_prompts(prompt_NQ)):
            if item.answer is None:
                raise ValueError(
                    f"{self.dataset} gives no reference answer to {item.prompt[:80]!r}, so no teacher."
                )
            answers.append(item.answer)
        tokens = [self.encode(answer) for answer in answers]
        return miswritten(answers, tokens, self.response_length, self.vocabulary - 2, rng, noise)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text; ValueError naming every character outside the alphabet."""
        unknown = sorted(set(text) - self._token.keys())
        if unknown:
            raise ValueError(
                f"{self.dataset} uses {', '.join(map(repr, unknown))} in {text[:80]!r}, not in its "
                f"alphabet of {len(self._token)}; pass alphabet='ascii', the characters, or a larger survey."
            )
        return [self._token[c] for c in text]

    def validate(self, items: int = 16) -> Report:
        """Score the reference answers and a list of nonsense answers of the first `items` problems."""
        drawn = [self.item(i) for i in range(min(items, self.pool))]
        scorer = SafeScorer(self.scorer.dataset, partial_credit=True)
        with isolated():
            reference = [scorer.score(item.answer, item.entry) for item in drawn if item.answer is not None]
            texts = [(item, text) for item in drawn for text in GARBAGE if text != item.answer]
            garbage = [scorer.score(text, item.entry) for item, text in texts]
        return Report(
            dataset=self.dataset, items=len(drawn), without_answer=len(drawn) - len(reference),
            reference_below_one=sum(score < 1.0 for score in reference), garbage=len(garbage),
            garbage_with_credit=sum(score > 0.0 for score in garbage), errors=scorer.errors,
            refused=scorer.refused, evaluates=scorer.evaluation(drawn[0].entry),
        )  # fmt: skip

    def _draw(self, rng: np.random.Generator) -> Item:
        for _ in range(TRIES):
            item = self.item(int(rng.integers(self.pool)))
            long_prompt = len(item.prompt) > self.prompt_length
            long_answer = item.answer is not None and len(item.answer) >= self.response_length
            if not (long_prompt or long_answer):
                return item
            self.rejected["prompt too long" if long_prompt else "answer too long"] += 1
        raise ValueError(
            f"{TRIES} problems of {self.dataset} in a row exceed prompt_length={self.prompt_length} or "
            f"response_length={self.response_length}; rejected: {dict(self.rejected)}. Raise the limits."
        )

    def _find(self, prompt_Q: Ints) -> Item:
        text = "".join(self.symbols[v] for v in prompt_Q if v != self.pad_token)
        # A prompt from another instance: its problem has not been generated here yet.
        for index in range(self.pool if text not in self._index else 0):
            if self.item(index).prompt == text:
                break
        if text not in self._index:
            raise ValueError(
                f"{text[:80]!r} is not one of the {self.pool} problems of this {self.dataset} task."
            )
        return self._items[self._index[text]]

    def _longest_answer(self, surveyed: list[Item]) -> int:
        lengths = [len(item.answer) for item in surveyed if item.answer is not None]
        if not lengths:
            raise ValueError(f"{self.dataset} has no reference answers to measure; pass response_length.")
        return max(lengths)


def own_characters(items: list[Item]) -> str:
    """Return the items' sorted characters and all digits, plus printable ASCII if letters occur."""
    seen = set("0123456789").union(*(item.prompt + (item.answer or "") for item in items))
    if any(c.isalpha() for c in seen):
        seen.update(ASCII)
    return "".join(sorted(seen))


def open_dataset(name: str, args: Mapping[str, Any]) -> Any:
    """Open the reasoning-gym data set `name`; ValueError for an unknown name or argument."""
    try:
        import reasoning_gym as gym
        from reasoning_gym.composite import DatasetSpec
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ImportError(
            "the reasoning-gym task needs the package reasoning_gym: pip install 'off-policy-testbed[tasks]'"
        ) from error
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1)
        every = f"It has {len(DATASETS)}: {', '.join(sorted(DATASETS))}."
        hint = f"Did you mean {near[0]!r}?" if near else every
        raise ValueError(f"reasoning-gym has no data set {name!r}. {hint}")
    given = dict(args)
    if name == "composite":
        parts = given.get("datasets", [])
        given["datasets"] = [d if isinstance(d, DatasetSpec) else DatasetSpec(**d) for d in parts]
    try:
        with isolated(silent=True):
            return gym.create_dataset(name, **given)
    except (TypeError, AssertionError, ValueError) as error:
        raise ValueError(f"reasoning-gym {name} does not take {dict(args)}: {error}") from error
