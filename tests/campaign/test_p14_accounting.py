"""P14: planned = done + failed + pending at any time."""

import random
import time

import pytest
from support.runners import started
from support.small_store import CELLS, PACKS, content, filled

from testbed.errors import UserError
from testbed.results.store import Failure, status


def test_planned_is_done_and_failed_and_pending_after_every_event(tmp_path, campaign):
    events = campaign.trials(short=60, full=1500)
    dice = random.Random(1)
    store = filled(tmp_path / "s", [])
    done: set[str] = set()
    failed: set[str] = set()
    for _ in range(events):
        pack = dice.choice(PACKS)
        event = dice.choice(["commit", "commit", "fail", "damage", "delete", "forget", "garble"])
        here = [path for path in (tmp_path / "s" / "packs").iterdir() if path.name.startswith(pack.id)]
        record = tmp_path / "s" / "failures" / f"{pack.id}.json"
        if event == "commit":
            store.commit(pack.id, content(pack), {})
            done.add(pack.id)
        elif event == "fail":
            store.fail(Failure(pack.id, "died", "", pack.names))
            failed.add(pack.id)
        elif here and event == "damage":
            here[0].write_bytes(here[0].read_bytes()[:-1])
            done.discard(pack.id)
        elif here and event == "delete":
            here[0].unlink()
            done.discard(pack.id)
        elif record.exists() and event in ("forget", "garble"):
            record.unlink() if event == "forget" else record.write_bytes(record.read_bytes()[:-9])
            failed.discard(pack.id)
        now = status(tmp_path / "s")
        assert now.planned == now.done + now.failed + now.pending == len(CELLS)
        assert (now.done, now.failed) == (len(done), len(failed - done))
    campaign.tried("random events in a folder: commit, failure, damage, removal", events)


@pytest.mark.slow
def test_counts_add_up_at_every_look_at_a_running_sweep(tmp_path, campaign):
    looks, count = campaign.trials(short=1, full=4), 20
    seen = 0
    for look in range(looks):
        folder = tmp_path / str(look) / "s"
        folder.parent.mkdir()
        runner = started(folder, "half", count)
        done = failed = 0
        while runner.poll() is None:
            try:
                now = status(folder)
            except UserError:
                continue  # not begun yet
            seen += 1
            assert now.planned == now.done + now.failed + now.pending == count
            assert now.done >= done
            assert now.failed >= failed
            done, failed = now.done, now.failed
            time.sleep(0.01)  # a look is dear, the processor is the runner's
        out, told = runner.communicate()
        assert out == f"{count // 2} {count // 2} 0\n", told
    assert seen
    campaign.tried("looks at the status of a sweep while it runs", seen)
