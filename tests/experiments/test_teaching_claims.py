"""Claims about teachers and experts: planted tables turn every verdict, and bad input is refused."""

import numpy as np
import pytest
import torch

from analysis.experiments.engines import draft_states
from analysis.kernels.speculative import acceptance, accepted_length
from testbed.advantages.shaped import shaped_std
from testbed.data.signals import Signals
from testbed.errors import UserError
from testbed.objectives.terms.f_distillation import f_distillation


def test_a_draft_of_another_vocabulary_is_refused_and_a_perfect_one_accepted_whole():
    law = np.full((1, 4), 0.25)
    assert accepted_length([law, np.tile(law, (4, 1))], [law, np.tile(law, (4, 1))]) == pytest.approx(2)
    with pytest.raises(UserError, match="another vocabulary"):
        accepted_length([law], [np.full((1, 3), 1 / 3)])


def test_a_draft_is_accepted_but_for_its_total_variation():
    target, draft = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3))
    assert acceptance(target, draft) == pytest.approx(1 - np.abs(target - draft).sum(-1) / 2)


def test_a_target_writes_the_prefixes_of_each_length_with_its_own_chances():
    target = torch.zeros(85, 4, dtype=torch.float64)
    target[0, 1] = 3.0
    share_S = draft_states.prefixes(target)
    torch.testing.assert_close(share_S[1:5], target[0].softmax(-1))
    torch.testing.assert_close(share_S[5:21].view(4, 4).sum(1), target[0].softmax(-1))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: f_distillation(s, None, divergence="chi2"), "chi2"),
        (lambda s: f_distillation(s, None, divergence="js", beta=1.0), "beta"),
        (lambda s: shaped_std(Signals(s[:, 0], torch.zeros(2, dtype=torch.int64)), above=0.0), "positive"),
    ],
)
def test_impossible_settings_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call(torch.zeros(2, 1))
