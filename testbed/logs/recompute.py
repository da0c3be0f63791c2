"""Recompute missing log-probabilities of a log with a local model: one forward pass per sequence."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from envs.arrays import Floats, Ints
from testbed.errors import UserError
from testbed.logs.record import Log, LoggedSequence
from testbed.policies.hf.chat_task import encoded

MISSING = {"logp_pi": "the trainer's", "logp_mu": "the sampler's"}


def recomputed(log: Log, folder: Path, field: str = "logp_pi", temperature: float = 1.0) -> Log:
    """Return the log with one kind of log-probabilities filled in where missing.

    log softmax(logits / temperature) of the response's tokens after the prompt's, in float32. Text sequences
    are tokenized first, prompt and response separately, which may differ from the sampled tokens.

    Args:
        log: sequences with prompt and token, or with text.
        folder: a local model, with a tokenizer if the log has text.
        field: logp_pi or logp_mu.
        temperature: sampling temperature of the recorded log-probabilities.

    Raises UserError for a folder without a valid model, a temperature that is not positive, tokens beyond its
    vocabulary, sequences longer than its positions, and sequences without prompt.
    """
    from testbed.policies.hf.model_folder import check_model_folder

    if not temperature > 0:
        raise UserError(f"temperature is {temperature:g}, expected a positive number.")
    path = check_model_folder(folder)
    missing = log.some(field) - len(log.sequences)
    if not missing:
        note = f"{field} is in the log and was not recomputed with {folder}."
        return replace(log, notes=(*log.notes, note))
    model, tokenizer = _opened(path, text=any(one.text for one in log.sequences))
    found = [
        one
        if getattr(one, field) is not None
        else _filled(_tokenized(one, tokenizer), model, field, temperature)
        for one in log.sequences
    ]
    notes = [
        f"{field} ({MISSING[field]}) of {-missing} sequences was recomputed with {folder} at temperature "
        f"{temperature:g}. The same weights serve every step of the log."
    ]
    if any(one.text for one in log.sequences):
        notes.append("Text was tokenized again: the tokens may differ from the sampled ones.")
    # Only now is it known that a text has no token; without log-probabilities it would pass for missing ones.
    kept = tuple(one for one in found if one.mask.any())
    if len(kept) < len(found):
        lost = f"{len(found) - len(kept)} of {len(found)} sequences"
        notes.append(f"{lost} have no token under their mask: dropped.")
    return replace(log, sequences=kept, notes=(*log.notes, *notes))


def _opened(folder: Path, text: bool) -> tuple[Any, Any]:
    import torch
    import transformers

    from testbed.policies.hf.model_folder import quiet_transformers

    try:
        with quiet_transformers():
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
            ).eval()
            how = {"local_files_only": True, "trust_remote_code": False}
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **how) if text else None
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"The model in {folder} cannot be opened: {reason}") from error
    return model, tokenizer


def _tokenized(one: LoggedSequence, tokenizer: Any) -> LoggedSequence:
    """Return a sequence of text with tokens; messages are rendered with the tokenizer's chat template."""
    if one.text is None or one.token is not None:
        return one

    prompt, response = (_rendered(text, tokenizer) for text in one.text)
    prompt_ids = np.asarray(encoded(tokenizer, prompt, special=False), dtype=np.int64)
    token = np.asarray(encoded(tokenizer, response, special=False), dtype=np.int64)
    advantage = None if one.scalar_advantage is None else np.full(len(token), one.scalar_advantage)
    mask = np.ones(len(token), dtype=bool)
    return replace(one, prompt=prompt_ids, token=token, mask=mask, advantage=advantage)


def _rendered(text: str, tokenizer: Any) -> str:
    try:
        messages = json.loads(text) if text.startswith("[{") else None
    except ValueError:
        messages = None
    if not isinstance(messages, list):
        return text
    if not tokenizer.chat_template:
        raise UserError(
            "The log holds messages, but the model's tokenizer has no chat template to render them with."
        )
    opening = messages[-1].get("role") != "assistant"
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=opening))


def _filled(one: LoggedSequence, model: Any, field: str, temperature: float) -> LoggedSequence:
    if one.token is None or one.prompt is None or not len(one.prompt):
        raise UserError(
            f"step {one.step}, sample {one.sample} has no tokens, or no prompt before them: nothing to "
            "recompute from."
        )
    if not len(one.token):
        return one
    found: dict[str, Any] = {field: response_logp(model, one.prompt, one.token, temperature)}
    return replace(one, **found)


def response_logp(model: Any, prompt_Q: Ints, token_T: Ints, temperature: float) -> Floats:
    """Return log-probabilities [T] of response tokens; UserError for tokens that the model lacks."""
    import torch

    every = np.concatenate([prompt_Q, token_T])
    rows = int(model.get_input_embeddings().weight.shape[0])
    unknown = every[(every < 0) | (every >= rows)]
    if len(unknown):
        raise UserError(
            f"The log has token {int(unknown[0])}, the model the tokens 0 to {rows - 1}: another model "
            "sampled this log. Give that one."
        )
    most = getattr(model.config, "max_position_embeddings", None)
    if most is not None and len(every) > most:
        raise UserError(f"A sequence has {len(every)} tokens, the model {most} positions.")
    # The logits at a place are those of the token after it.
    ids = torch.from_numpy(every)[None]
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(prompt_Q) - 1 : -1].float() / temperature
    logp = logits.log_softmax(-1).gather(-1, torch.from_numpy(token_T)[:, None])[:, 0]
    found: Floats = logp.double().numpy()
    return found
