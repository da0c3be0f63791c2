"""Complete a model folder for other programs: end, padding and unknown tokens, and a context length."""

from pathlib import Path

import torch

from testbed.policies.hf.model_folder import quiet_transformers
from testbed.policies.hf.text_task import load_tokenizer

ROLES = {"eos_token": "<end>", "pad_token": "<pad>", "unk_token": "<unk>"}
POSITIONS = 1024
"""Least context length of a finished folder in tokens; rotary positions have no weights."""


def finish_folder(folder: Path) -> None:
    """Make a trained model usable by any program: trainers stop at its end token and pad with its padding.

    Missing tokens are appended, each with an embedding row of zeros, so the logits of the others are
    unchanged.
    """
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    with quiet_transformers():
        given = PreTrainedTokenizerFast.from_pretrained(str(folder))
        given.add_special_tokens({role: t for role, t in ROLES.items() if getattr(given, role) is None})
        given.save_pretrained(str(folder))
        tokenizer = load_tokenizer(folder)
        model = AutoModelForCausalLM.from_pretrained(str(folder), dtype="auto")
        rows = model.config.vocab_size
        if len(tokenizer) > rows:
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
            with torch.no_grad():
                model.get_input_embeddings().weight[rows:] = 0  # if tied, also rows of the head
        model.config.max_position_embeddings = max(model.config.max_position_embeddings, POSITIONS)
        for config in (model.config, model.generation_config):
            config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
        model.save_pretrained(str(folder))
