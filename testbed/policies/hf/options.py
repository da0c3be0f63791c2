"""Options of a Hugging Face policy that are wrong for any weights: refused before reading any."""

import torch

from testbed.errors import UserError, unknown
from testbed.policies.hf.lora import Lora, checked_settings
from testbed.policies.hf.micro_batches import checked_micro_tokens
from testbed.policies.hf.model_folder import DTYPES


def check_options(
    temperature: float = 1.0,
    dtype: str | torch.dtype = "float32",
    micro_tokens: int = 0,
    lora: int = 0,
    lora_alpha: float = 0.0,
    adapter: str = "",
    **_others: object,
) -> None:
    """Raise UserError for arguments of HuggingFacePolicy that are wrong for any weights."""
    if not temperature > 0:
        raise UserError(f"temperature must be positive, got {temperature}; 1 samples from the model itself.")
    if isinstance(dtype, str) and dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    checked_micro_tokens(micro_tokens)
    if lora and not adapter:
        checked_settings(Lora(lora, lora_alpha))
