"""P2: a pack that kills its worker costs and blames itself alone."""

import pytest
from support.sweep_process import cells

from testbed.execution.runner import run_sweep

DEATHS = {
    "poison": "killed by SIGKILL. Memory may have run out.",
    "segfault": "killed by SIGSEGV.",
    "vanish": "ended with exit code 0.",
}


@pytest.mark.slow
def test_a_pack_that_kills_its_worker_costs_and_blames_itself_alone(tmp_path, campaign):
    count = campaign.trials(short=20, full=50)
    deaths = list(DEATHS) * campaign.trials(short=1, full=2)
    for number, death in enumerate(deaths):
        folder = tmp_path / str(number)
        now = run_sweep(cells(count), folder, workers=2, function=f"support.fake_training:{death}")
        assert (now.done, now.failed, now.pending) == (count - 1, 1, 0)
        (failure,) = now.failures
        assert (failure.kind, failure.attempts) == ("died", 2)
        assert failure.message == f"The worker process {'was ' * ('killed' in DEATHS[death])}{DEATHS[death]}"
        assert failure.cells[0].startswith("bandit/grpo/lag0/seed7-")
    campaign.tried(f"a cell of {count} that dies of SIGKILL, SIGSEGV or exit 0 at every attempt", len(deaths))
