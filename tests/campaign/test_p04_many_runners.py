"""P4: many runners on one folder share the work, commit nothing twice, and leave no lock behind."""

import pytest
from support.runners import hashes, started, workers_of
from support.small_store import PACKS, content, filled
from support.sweep_process import cells

from testbed.execution.runner import run_sweep
from testbed.results.store import Store


@pytest.mark.slow
def test_four_runners_on_one_folder_share_the_work_and_commit_nothing_twice(tmp_path, campaign):
    trials, count = campaign.trials(short=1, full=3), 40
    run_sweep(cells(count), tmp_path / "whole", workers=0, function="support.fake_training:train")
    for trial in range(trials):
        folder = tmp_path / str(trial) / "s"
        folder.parent.mkdir()
        runners = [started(folder, "noted", count, workers=1) for _ in range(4)]
        for runner in runners:
            out, told = runner.communicate(timeout=600)
            assert (runner.returncode, out) == (0, f"{count} 0 0\n"), told
        assert hashes(folder) == hashes(tmp_path / "whole")
        seeds = sorted(int(path.name.split("-")[0]) for path in (folder.parent / "traces").iterdir())
        assert seeds == list(range(count)), "each pack ran once, in one of the runners"
        assert list((folder / ".locks").iterdir()) == []
    campaign.tried("four runners started at once on one folder of 40 packs", trials)


@pytest.mark.slow
def test_the_lock_of_a_killed_runner_is_free_at_once(tmp_path, campaign):
    trials = campaign.trials(short=1, full=5)
    for trial in range(trials):
        folder = tmp_path / str(trial) / "s"
        folder.parent.mkdir()
        runner = started(folder, "endless", 2)
        workers_of(folder, 2)
        store = Store(folder)
        assert not any(store.claim(pack) for pack in store.packs), "the runner holds both"
        runner.kill()
        runner.communicate()
        assert all(store.claim(pack) for pack in store.packs), "its lock files are there, its locks are not"
        store.close()
    campaign.tried("SIGKILL of a runner that holds two locks", trials)


def test_results_of_others_are_seen_by_a_store_that_is_open_already(tmp_path, campaign):
    """A store looks at the whole folder once, and later at the provenance that comes before a result."""
    mine, other = filled(tmp_path / "s", []), filled(tmp_path / "s", [])
    assert not any(mine.settled(pack.id) for pack in PACKS)
    for pack in PACKS:
        assert other.commit(pack.id, content(pack), {})
        assert mine.settled(pack.id)
        assert not mine.commit(pack.id, b"other numbers", {})
    for path in (tmp_path / "s" / "provenance").iterdir():
        path.unlink()
    assert all(Store(tmp_path / "s").settled(pack.id) for pack in PACKS)
    campaign.tried("commits of packs that another store has committed", len(PACKS))
