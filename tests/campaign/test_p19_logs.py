"""P19: malformed training logs end in one message, whatever is wrong with them."""

import pytest
from support.log_mutations import FORMATS, tracebacks


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_mutated_logs_of_every_format_end_without_a_traceback(tmp_path, campaign):
    """One mutation of bytes or of values per log, over all formats in turn by fixed seeds."""
    trials = campaign.trials(150, 10_000)
    campaign.tried(f"mutated logs of {len(FORMATS)} formats: {', '.join(FORMATS)}", trials)
    assert tracebacks(tmp_path, range(trials)) == []
