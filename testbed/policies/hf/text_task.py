"""Render any token task as text, so that a model can learn it through its tokenizer."""

from pathlib import Path
from typing import Any

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.tokens.jsonl import Jsonl
from envs.tokens.token_task import TokenTask
from testbed.errors import UserError
from testbed.policies.hf.chat_task import ChatTask, encoded, end_tokens
from testbed.policies.hf.model_folder import check_model_folder, quiet_transformers

TEMPLATE = "{prompt}\nAnswer:"
SURVEY = 64


class TextTask(TokenTask):
    """A task in a tokenizer's vocabulary: prompts are encoded; the task scores decoded responses.

    Prompt: the template filled with the task's printed prompt, padded on the left. Response: up to
    `response_length` tokens, ended by the tokenizer's end token. The task scores the decoded text without
    surrounding blanks, up to the first line break unless the task itself writes line breaks. Text with other
    symbols than the task's, or too long for it, scores 0.

    Raises UserError if the tokenizer changes prompts, decode(encode(x)) != x.
    """

    def __init__(
        self, task: TokenTask, tokenizer: Any, template: str = TEMPLATE, response_length: int | None = None
    ) -> None:
        if template.count("{prompt}") != 1:
            raise UserError(f"template must hold '{{prompt}}' once, got {template!r}.")
        self.task, self.tokenizer, self.template = task, tokenizer, template
        self._before, self._after = template.split("{prompt}")
        names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        self.symbols = tuple(name or "" for name in names)
        self.end_token = tokenizer.eos_token_id
        # No tokenizer makes more tokens than bytes; the policy drops columns of padding only.
        widest = max(len(symbol.encode()) for symbol in task.symbols) + 1
        specials = len(tokenizer("").input_ids) + 1
        self.prompt_length = task.prompt_length * widest + len(template.encode()) + specials
        self.response_length = response_length or task.response_length + 4
        special = {task.end_token, task.pad_token}
        self._codes = {s: v for v, s in enumerate(task.symbols) if v not in special}
        self._wide = any(len(symbol) > 1 for symbol in self._codes)
        sample_NQ = task.prompts(np.random.Generator(np.random.Philox(key=0)), SURVEY)
        self.pad_token = self._free_token(self._encode(self._fill(sample_NQ[0]))[0])
        for given_Q in sample_NQ:
            tokens = self._encode(self._fill(given_Q))
            back = self._decode(np.array(tokens, dtype=np.int64), skip_special=True)
            if back != self._fill(given_Q):
                raise UserError(
                    f"The model's tokenizer turns {self._fill(given_Q)!r} into {back!r}, so prompts "
                    "cannot be told apart; give a model with a tokenizer that keeps every character."
                )

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """Return n prompts of the task, encoded and padded on the left, [N, Q]."""
        return self._written(self.task.prompts(rng, n))

    def _written(self, given_NQ: Ints) -> Ints:
        prompt_NQ = np.full((len(given_NQ), self.prompt_length), self.pad_token, dtype=np.int64)
        for row_Q, given_Q in zip(prompt_NQ, given_NQ, strict=True):
            tokens = self._encode(self._fill(given_Q))
            if len(tokens) > self.prompt_length:
                raise UserError(
                    f"A prompt has {len(tokens)} tokens, more than the {self.prompt_length} expected."
                )
            if tokens[0] == self.pad_token:
                raise UserError(
                    f"A prompt begins with {self.symbols[tokens[0]]!r}, which serves as padding here; give "
                    "the tokenizer a padding token that no prompt begins with."
                )
            row_Q[self.prompt_length - len(tokens) :] = tokens
        return prompt_NQ

    def held_out_prompts(self, rng: np.random.Generator, n: int) -> Ints:
        return self._written(self.task.held_out_prompts(rng, n))

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """Return the task's score of each decoded response, 0 for text that the task cannot write, [N]."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        reward_N = np.zeros(len(prompt_NQ))
        read = [self._read(self._response_text(*row)) for row in zip(response_NT, mask_NT, strict=True)]
        rows = np.array([n for n, answer in enumerate(read) if answer is not None], dtype=np.int64)
        if rows.size:
            token_NT, inside_NT = (np.stack(parts) for parts in zip(*(read[n] for n in rows), strict=True))
            reward_N[rows] = self.task.score(self._originals(prompt_NQ[rows]), token_NT, inside_NT)
        return reward_N

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Return the task's teacher's answers as text: one blank, the answer, then the end token."""
        solution_NT, inside_NT = self.task.teacher(self._originals(prompt_NQ), rng, noise)
        response_NT = np.zeros((len(prompt_NQ), self.response_length), dtype=np.int64)
        mask_NT = np.zeros(response_NT.shape, dtype=bool)
        for n, (token_T, mask_T) in enumerate(zip(solution_NT, inside_NT, strict=True)):
            kept_T = mask_T & (token_T != (-1 if self.task.end_token is None else self.task.end_token))
            tokens = self._encode(" " + self.task.text(token_T, kept_T), special=False)
            tokens += [] if self.end_token is None else [self.end_token]
            if len(tokens) > self.response_length:
                raise UserError(
                    f"A solution has {len(tokens)} tokens; raise response_length, now {self.response_length}."
                )
            response_NT[n, : len(tokens)], mask_NT[n, : len(tokens)] = tokens, True
        return response_NT, mask_NT

    def text(self, tokens: Any, mask: Any = None) -> str:
        """The text of one token row, without padding and without tokens whose mask is False."""
        token_T = np.asarray(tokens, dtype=np.int64)
        keep_T = token_T != self.pad_token if mask is None else np.asarray(mask, dtype=bool)
        return self._decode(token_T[keep_T], skip_special=False)

    def _fill(self, given_Q: Ints) -> str:
        return self._before + self.task.text(given_Q) + self._after

    def _encode(self, text: str, special: bool = True) -> list[int]:
        return encoded(self.tokenizer, text, special)

    def _decode(self, token_T: Ints, skip_special: bool) -> str:
        options = {"skip_special_tokens": skip_special, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(token_T.tolist(), **options))

    def _free_token(self, first: int) -> int:
        """Return a padding token that starts no prompt, so that no prompt's start counts as padding."""
        for token in (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if token is not None and token != first:
                return int(token)
        return 0 if first else 1

    def _response_text(self, token_T: Ints, mask_T: Bools) -> tuple[str, bool]:
        """Return the answer and True if it was finished, by an end token or a line break."""
        kept_T = token_T[mask_T]
        ended = kept_T.size > 0 and kept_T[-1] == self.end_token
        text = self._decode(kept_T[: kept_T.size - int(ended)], skip_special=False)
        if "\n" in self._codes:
            return text.strip(), ended
        line, break_, _ = text.lstrip().partition("\n")
        return line.strip(), ended or bool(break_)

    def _read(self, answer: tuple[str, bool]) -> tuple[Ints, Bools] | None:
        """Return the answer in the task's tokens and their mask, [T] each; None for other text."""
        text, ended = answer
        tokens = [self._codes.get(part, -1) for part in (text.split() if self._wide else text)]
        if ended and self.task.end_token is not None:
            tokens.append(self.task.end_token)
        if -1 in tokens or len(tokens) > self.task.response_length:
            return None
        token_T = np.zeros(self.task.response_length, dtype=np.int64)
        token_T[: len(tokens)] = tokens
        return token_T, np.arange(self.task.response_length) < len(tokens)

    def _originals(self, prompt_NQ: Ints) -> Ints:
        """Return the task's prompts of the encoded ones, [N, Q of the task]."""
        known: dict[bytes, Ints] = {}
        for row_Q in prompt_NQ:
            if row_Q.tobytes() not in known:
                known[row_Q.tobytes()] = self._original(row_Q)
        return np.stack([known[row_Q.tobytes()] for row_Q in prompt_NQ])

    def _original(self, row_Q: Ints) -> Ints:
        start = int(np.argmax(row_Q != self.pad_token))
        text = self._decode(row_Q[start:], skip_special=True)
        text = text.removeprefix(self._before).removesuffix(self._after)
        tokens = [self._codes.get(part, -1) for part in (text.split() if self._wide else text)]
        if -1 in tokens or len(tokens) > self.task.prompt_length:
            raise UserError(
                f"{text!r} is not one of this task's prompts; score only prompts that the task gave."
            )
        pad = [] if self.task.pad_token is None else [self.task.pad_token]
        return np.array(pad * (self.task.prompt_length - len(tokens)) + tokens, dtype=np.int64)


def load_tokenizer(model_path: str | Path) -> Any:
    """Return the tokenizer of a model folder, None if it has none; UserError if it is broken or unsafe."""
    folder = check_model_folder(model_path)
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        return None
    from transformers import AutoTokenizer

    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers and tokenizers raise many kinds
        raise UserError(f"Cannot load the tokenizer in '{folder}': {error}") from error


def task_for_model(task: TokenTask, model_path: str | Path, template: str = TEMPLATE) -> TokenTask:
    """Return the task as the model in the folder reads it.

    The task itself if the folder has no tokenizer, or one that starts with the task's symbols in order (as
    `train_base` writes it); a ChatTask for problems of a file; else a TextTask.
    """
    tokenizer = load_tokenizer(model_path)
    if tokenizer is None or speaks(tokenizer, task):
        return task
    if isinstance(task, Jsonl):
        return ChatTask(task, tokenizer, end_tokens(Path(model_path)))
    return TextTask(task, tokenizer, template)


def speaks(tokenizer: Any, task: TokenTask) -> bool:
    """True if token v of the tokenizer prints symbol v of the task, for every symbol."""
    if len(tokenizer) < task.vocabulary:
        return False
    return tuple(tokenizer.convert_ids_to_tokens(list(range(task.vocabulary)))) == tuple(task.symbols)
