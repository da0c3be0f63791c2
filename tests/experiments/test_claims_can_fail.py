"""Every exact claim names code of the project that it is about, and a bug planted there refutes it."""

import importlib

import pytest
from support.deciding import word
from support.planting import planted

from analysis.judging.claims import CLAIMS
from analysis.planted_bugs import PLANTED, Bug

COMPUTED = [n for n in CLAIMS if not CLAIMS[n].promises["table"]]
PLANTS = [pytest.param(bug, id=f"{bug.claim}-{index}") for index, bug in enumerate(PLANTED)]


def test_every_computed_claim_and_no_other_has_a_planted_bug():
    assert {bug.claim for bug in PLANTED} == set(COMPUTED)


def test_bugs_are_planted_in_the_code_that_claims_speak_of_not_in_their_own():
    spoken_of = ("testbed/", "envs/", "analysis/kernels/")
    assert [bug for bug in PLANTED if not bug.file.startswith(spoken_of)] == []


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTS)
def test_a_planted_bug_refutes_the_claim(bug):
    with planted(bug.file, bug.old, bug.new):
        evidence = CLAIMS[bug.claim].function()
    assert word(evidence) == "refuted", f"{evidence.effect:.3g}: {evidence.note}"


# Planting itself

FILE = "testbed/diagnostics/tail_indices.py"
BUG = Bug("hill", FILE, "return math.ceil(min(n / 5, 3 * math.sqrt(n)))", "return 99")


def test_a_planted_bug_is_seen_through_every_name_and_gone_afterwards():
    tails = importlib.import_module("testbed.diagnostics.tail_indices")
    imported = tails.tail_length
    with planted(BUG.file, BUG.old, BUG.new):
        assert imported(100) == tails.tail_length(100) == 99
    assert imported(100) == tails.tail_length(100) == 20


def test_a_bug_that_is_nowhere_or_outside_functions_is_not_planted():
    for old, new in (("no such text", "x"), ("NEEDED = 5", "NEEDED = 6")):
        with pytest.raises(ValueError, match="tail_indices"), planted(FILE, old, new):
            pass


def test_the_function_that_holds_the_bug_is_named():
    assert BUG.about == "testbed.diagnostics.tail_indices.tail_length"
    inside = Bug("y", "testbed/anchors/weight_anchors.py", "self.total_CP / self.weight", "x")
    assert inside.about == "testbed.anchors.weight_anchors.Average.logp"
