"""Bugs planted in what real models need: micro-batches, adapters, samplers, checkpoints, tasks from files."""

from mutants.mutant import Mutant

MICRO, IN_MICRO = "testbed/policies/hf/micro_batches.py", "tests/unit/policies/test_micro_batches.py"

MUTANTS = (
    Mutant("micro-parts-overfull", MICRO, "start, stop + 1) <= most:", "start, stop) <= most:", IN_MICRO),
    Mutant("micro-parts-overlap", MICRO, "        start = stop\n", "        start += 1\n", IN_MICRO),
    Mutant("micro-pieces-too-long", MICRO, "(most - prompt) // max(longest, 1)", "most // max(longest, 1)", IN_MICRO),
    Mutant("micro-gradient-of-the-sum", MICRO, "leaf_P, grad_MT)", "leaf_P, torch.ones_like(grad_MT))", IN_MICRO),
    Mutant("micro-recomputes-for-nothing", MICRO, "if not grad_MT.any():", "if False:", IN_MICRO),
    Mutant("micro-out-of-memory-unheard", MICRO, "with ctx.refused(), torch.enable_grad():", "with torch.enable_grad():", IN_MICRO),
    Mutant("micro-first-guess-fits", MICRO, "            continue\n        return tokens", "            return tokens\n        return tokens", IN_MICRO),
)  # fmt: skip
