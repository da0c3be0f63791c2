"""Options of a Hugging Face policy that are wrong for any weights: refused before reading any."""

import time
from math import inf

import torch

from testbed.errors import UserError, unknown
from testbed.policies.hf.lora import ALL, Lora, checked_settings
from testbed.policies.hf.micro_batches import checked_micro_tokens
from testbed.policies.hf.model_folder import DTYPES

LOGP_TOLERANCE = {torch.float64: 2e-5, torch.float32: 2e-5, torch.float16: 0.02, torch.bfloat16: 0.1}
"""Largest difference in nats per token between the sampler's log-probabilities and `logp` at equal weights.

The sampler reads one token at a time, training all at once: sums run in another order. float64 does not help
if a model computes its norms in float32 (Llama, Qwen); elsewhere it reaches 1e-12.
"""


def check_options(
    temperature: float = 1.0,
    dtype: str | torch.dtype = "float32",
    micro_tokens: int = 0,
    lora: int = 0,
    lora_alpha: float = 0.0,
    lora_targets: str = ALL,
    adapter: str = "",
    **_others: object,
) -> None:
    """Raise UserError for arguments of HuggingFacePolicy that are wrong for any weights."""
    if not 0 < temperature < inf:
        raise UserError(
            f"temperature must be positive and finite, got {temperature}; 1 samples from the model itself."
        )
    if isinstance(dtype, str) and dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    checked_micro_tokens(micro_tokens)
    if lora and not adapter:
        checked_settings(Lora(lora, lora_alpha))
    elif not adapter and (lora_alpha or lora_targets != ALL):
        raise UserError(
            "policy_args has lora_alpha or lora_targets, but no lora, so all weights would be trained; "
            "give the rank too, as lora=16."
        )


def bfloat16_slowdown() -> float:
    """Return how many times as long a matrix product takes on this CPU in bfloat16 as in float32.

    About 8 where the CPU has no bfloat16 products, .25 where it has; measured in a hundredth of a second.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine several threads wait for each other
    try:
        return _product_seconds(torch.bfloat16) / _product_seconds(torch.float32)
    finally:
        torch.set_num_threads(threads)


def _product_seconds(dtype: torch.dtype) -> float:
    x_MI, w_II = torch.ones(64, 512, dtype=dtype), torch.ones(512, 512, dtype=dtype)
    tried = []
    for _ in range(6):  # the first product prepares, and a busy machine interrupts some
        start = time.perf_counter()
        torch.nn.functional.linear(x_MI, w_II)
        tried.append(time.perf_counter() - start)
    return min(tried)


def faster_dtype() -> str:
    """Return the name of the dtype that is faster on this CPU: "float32" or "bfloat16"."""
    return "bfloat16" if bfloat16_slowdown() < 1 else "float32"
