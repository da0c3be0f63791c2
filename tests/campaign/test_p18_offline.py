"""P18: offline by default; nothing listens beyond loopback; temporary files are private."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.runners import HERE

ROOT = HERE.parent
GUARD = """
import os, sys
def guard(event, args):
    if event.removeprefix("socket.") in ("connect", "bind", "sendto", "getaddrinfo", "gethostbyname"):
        if event.startswith("socket.get") or args[0].family != 1:
            with open(os.environ["TRIED"], "a") as file:
                file.write(event + " " + repr(args[-1]) + "\\n")
            raise PermissionError("this test allows no network: " + event)
sys.addaudithook(guard)
"""
TINY = "steps=4 lag=0,2 seed=0 prompts=2 group=2 log_every=2 --quiet"
PATHS = (
    f"run ess-collapse {TINY} --workers 2 --out tabular",
    f"run staleness {TINY} --workers 0 recipe=grpo evaluation_prompts=4 warm_start_steps=2 --out toy",
    "status tabular", "evidence figures ess-collapse --data tabular --out figures", "list tasks",
    "show ppo_clip", "list claims", "list metrics",
)  # fmt: skip
MODEL = (
    "run --model model --out hf task=running-sum recipe=grpo lag=0 steps=2 prompts=2 group=2 "
    "task_args.digits=2 task_args.modulus=2"
)
RUN = """
import sys
from testbed.cli import main
for words in sys.argv[1:]:
    if words.startswith("run --model"):
        from testbed.policies.hf.tiny_model import save_random_model, save_tokenizer
        from testbed.worlds.task_registry import build_task
        task = build_task("running-sum", digits=2, modulus=2)
        save_tokenizer("model", task), save_random_model("model", task, seed=0, width=16, layers=1)
    try:
        main(words.split())
    except SystemExit as end:
        assert end.code == 0, (words, end.code)
"""


def guarded(folder: Path, paths: tuple[str, ...]) -> list[str]:
    """Return the command that runs the paths, where nothing can be reached if this machine allows that."""
    (folder / "guard").mkdir()
    (folder / "guard" / "sitecustomize.py").write_text(GUARD)
    apart = ["unshare", "-n"]
    may = subprocess.run([*apart, "true"], capture_output=True, check=False).returncode == 0
    return [*(apart if may else []), sys.executable, "-c", RUN, *paths]


def surroundings(folder: Path) -> dict[str, str]:
    (folder / "tmp").mkdir()
    path = os.pathsep.join([str(folder / "guard"), str(ROOT)])
    bare = {name: value for name, value in os.environ.items() if not name.startswith("HF_HUB")}
    return bare | {"PYTHONPATH": path, "TRIED": str(folder / "tried"), "TMPDIR": str(folder / "tmp")}


@pytest.mark.slow
def test_the_main_paths_ask_nothing_of_the_network_and_leave_no_temporary_file(tmp_path, campaign):
    paths = (*PATHS, MODEL) if campaign.full else PATHS[:5]
    command, variables = guarded(tmp_path, paths), surroundings(tmp_path)
    readable: set[str] = set()
    process = subprocess.Popen(
        command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

    def watch() -> None:
        while process.poll() is None:
            for path in (tmp_path / "tmp").rglob("*"):
                try:
                    if path.lstat().st_mode & 0o077:
                        readable.add(str(path))
                except FileNotFoundError:
                    continue
            stop.wait(0.02)

    stop = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()
    _, told = process.communicate()
    watcher.join()
    assert process.returncode == 0, told
    assert not (tmp_path / "tried").exists(), (tmp_path / "tried").read_text()
    assert not readable, "a temporary file that others can read"
    assert list((tmp_path / "tmp").iterdir()) == []
    campaign.tried("commands with sockets blocked, in a network without interfaces where allowed", len(paths))


def test_the_guard_of_these_tests_sees_a_socket(tmp_path, campaign):
    """Were it blind, the test above could not fail."""
    guarded(tmp_path, ())
    script = "import socket; socket.create_connection(('127.0.0.1', 9))"
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=surroundings(tmp_path), capture_output=True, text=True, check=False)
    assert "this test allows no network" in ended.stderr
    assert "getaddrinfo" in (tmp_path / "tried").read_text()
    campaign.tried("a socket that the guard must see", 1)


LISTENING = """
import os, sys, threading, time
from pathlib import Path
from support.sweep_process import cells
from testbed.execution.runner import run_sweep

def family(process):
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [process, *(one for child in children for one in family(int(child)))]

def sockets():
    found = 0
    for process in family(os.getpid()):
        try:
            names = os.listdir(f"/proc/{process}/fd")
        except OSError:
            continue
        for name in names:
            try:
                found += os.readlink(f"/proc/{process}/fd/{name}").startswith("socket:")
            except OSError:
                pass
    return found

most, size, over = 0, 0, threading.Event()
def watch():
    global most, size
    while not over.wait(0.05):
        most, size = max(most, sockets()), max(size, len(family(os.getpid())))
watcher = threading.Thread(target=watch)
watcher.start()
run_sweep(cells(20), sys.argv[1], workers=2, function="support.fake_training:slow")
over.set()
watcher.join()
print(most, size)
"""


@pytest.mark.slow
def test_runner_and_workers_talk_through_pipes_and_open_no_socket(tmp_path, campaign):
    command = [sys.executable, "-c", LISTENING, tmp_path / "s"]
    ended = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    sockets, processes = map(int, ended.stdout.split())
    assert processes >= 3, "the runner and both workers were seen"
    assert sockets == 0
    campaign.tried("sockets of a runner and its two workers", 1)
