"""Bugs planted in what tells bugs of others."""

from mutants.mutant import Mutant

HOME = "testbed/conformance/"
TESTS = "tests/unit/conformance/"


def planted(name: str, file: str, old: str, new: str, tests: str) -> Mutant:
    return Mutant(f"conformance-{name}", f"{HOME}{file}.py", old, new, f"{TESTS}{tests}")


MUTANTS = (
    planted("weights-outside-the-mask-are-not-seen", "evidence", " or bool((mine[~batch.mask_BT] != 0).any())", "", "test_conform.py -k outside"),
    planted("changes-of-inputs-are-not-seen", "calling", "torch.allclose(value.detach(), before, 0, 0, equal_nan=True)", "True", "test_bad_losses.py -k changes"),
    planted("counterexamples-stay-large", "strategies", "(Phase.generate, Phase.shrink) if shrink else", "(Phase.generate,) if shrink else", "test_conform.py -k shrunk"),
    planted("the-estimator-is-searched", "conform", "if isinstance(value, str)} | dict(known)", "if isinstance(value, bytes)} | dict(known)", "test_conform.py -k words"),
    planted("parts-get-their-own-totals", "properties", "one, totals=totals)", "one)", "test_conform.py -k packed_global"),
    planted("packed-advantages-of-another-row", "layouts", "row_N = value_BT[there_BT]", "row_N = value_BT.flip(0)[there_BT]", "test_conform.py -k packed_gspo"),
    planted("logits-of-other-labels", "layouts", "hit_BTV, logp_BT[..., None]", "~hit_BTV, logp_BT[..., None]", "test_conform.py -k padded_logits"),
)  # fmt: skip
