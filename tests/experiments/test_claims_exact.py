"""Every exact claim that needs no table is judged supported; planted bugs M1 to M25
(docs/theory/planted-bugs.md) must refute one."""

import pytest
from support.deciding import word

from analysis.judging.claims import CLAIMS

COMPUTED = [n for n in CLAIMS if not CLAIMS[n].promises["table"]]
LONG = ("pipeline",)
SLOW = [n for n in COMPUTED if CLAIMS[n].promises["experiment"] in LONG]
"""Simulations, flows and small trainings, not enumerations."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in COMPUTED])
def test_an_exact_claim_is_supported(name):
    evidence = CLAIMS[name].function()
    assert word(evidence) == "supported", f"{evidence.effect:.3g}: {evidence.note}"
    assert evidence.n > 0, "nothing was checked"
