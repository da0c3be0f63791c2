"""P5: a full or read-only disk is one line that names the path; what is done stays, and resuming works."""

import contextlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.runners import HERE, hashes, started
from support.small_store import PACKS, content, filled
from support.sweep_process import cells

from testbed.errors import UserError
from testbed.execution.packs import plan
from testbed.execution.runner import run_sweep
from testbed.results.store import Store, read, status

TRAIN = "support.fake_training:train"


@pytest.mark.slow
def test_a_limit_on_file_sizes_ends_the_run_with_one_line_and_the_next_run_goes_on(tmp_path, campaign):
    """With small limits the plan does not fit, with larger ones the first pack."""
    trials = campaign.trials(short=2, full=10)
    run_sweep(cells(4), tmp_path / "whole", workers=0, function=TRAIN)
    dice = random.Random(5)
    for trial in range(trials):
        folder = tmp_path / str(trial)
        planned = bool(trial % 2)
        if planned:
            Store.start(folder, plan(cells(4)))
        limit = dice.randint(900, 2000) if planned else dice.randint(1, 900)
        runner = started(folder, "train", 4, workers=1, limit=limit)
        out, told = runner.communicate(timeout=600)
        assert (runner.returncode, out) == (2, ""), (limit, told)
        where = f"{folder}/p" if planned else f"{folder}/sweep.json"
        assert f"Cannot write {where}" in told
        assert "File too large. Free some space" in told, "no pack is done yet"
        assert "Traceback" not in told
        if planned:
            assert status(folder).pending == 4, "nothing half written"
        run_sweep(cells(4), folder, workers=0, function=TRAIN)
        assert hashes(folder) == hashes(tmp_path / "whole")
    campaign.tried("a run under a random RLIMIT_FSIZE, then the rest without it", trials)


TINY_DISK = """
set -e
mount -t tmpfs -o size=$2k,mode=700 tmpfs "$1"
cd "$3"
set +e
"$4" -m support.sweep_process "$1/s" train 40 1
echo "exit $?"
"$4" -c "import sys; from testbed.results.store import status; s = status(sys.argv[1]); \
print('before', s.done, s.pending, s.failed)" "$1/s"
mount -o remount,size=8m "$1"
"$4" -m support.sweep_process "$1/s" train 40 1
cp -r "$1/s" "$5"
"""


def may_mount() -> bool:
    command = ["unshare", "-m", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not may_mount(), reason="needs the right to mount")
def test_a_disk_that_fills_up_keeps_what_is_done_and_resumes_when_it_is_larger(tmp_path, campaign):
    trials = campaign.trials(short=1, full=4)
    run_sweep(cells(40), tmp_path / "whole", workers=0, function=TRAIN)
    for trial in range(trials):
        mount, copy = tmp_path / f"disk{trial}", tmp_path / f"copy{trial}"
        mount.mkdir()
        size = 180 + 24 * trial
        command = ["unshare", "-m", "bash", "-c", TINY_DISK, "bash"]
        ended = subprocess.run(
            [*command, mount, str(size), HERE, sys.executable, copy], capture_output=True, text=True,
            check=False, env=os.environ | {"TRACES": str(tmp_path)},
        )  # fmt: skip
        lines = ended.stdout.splitlines()
        assert lines[0] == "exit 2", ended.stderr
        assert f"Cannot write {mount}/s/" in ended.stderr
        assert "Traceback" not in ended.stderr
        _, done, pending, failed = lines[1].split()
        kept = "Results so far are kept. " if int(done) else ""
        assert f"No space left on device. {kept}Free some space" in ended.stderr
        assert (int(done) + int(pending), int(failed)) == (40, 0)
        assert lines[-1] == "40 0 0"
        assert hashes(copy) == hashes(tmp_path / "whole")
    campaign.tried("a tmpfs of 180 to 300 KiB that fills in a run, then is made larger", trials)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take away the right to write, from root too: root acts as nobody inside."""
    mode = folder.stat().st_mode
    user = os.geteuid()
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(mode if path.is_dir() else 0o644)


def test_a_read_only_folder_is_readable_and_writing_is_one_line(campaign):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        packs = PACKS[:2]
        filled(folder / "s", packs)
        damaged = next(iter((folder / "s" / "packs").iterdir()))
        damaged.write_bytes(b"damaged")
        with read_only(folder):
            assert status(folder / "s").done == 1
            assert len(set(read(folder / "s")["cell"].to_pylist())) == 1
            with pytest.raises(UserError, match=r"Cannot write .*: Permission denied.*Make the folder writ"):
                Store(folder / "s").commit(PACKS[3].id, content(PACKS[3]), {})
            with pytest.raises(UserError, match=r"Cannot write .*new: Permission denied"):
                Store.start(folder / "new", PACKS)
        assert Store(folder / "s").commit(PACKS[3].id, content(PACKS[3]), {})
    campaign.tried("reading, committing to and starting in a read-only folder with a damaged file", 3)
