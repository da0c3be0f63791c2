"""P9: a bad file or command line is one clear message and exit 2: no traceback, nothing written."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import tiny_models
from support.broken_models import BROKEN, CONFIG, WEIGHTS, Breaking, written
from support.command_line import call

from testbed.cli import main

GOOD = """\
# A sweep.
[run]
task = "running-sum"
policy = "toy"
learning_rate = 3e-3
task_args = {digits = 12}
steps = 4

[grid]
recipe = ["grpo", "m2po"]
lag = [0, 16]
recipe_args.eps = [0.1, 0.2]
"""
CHARACTERS = [*"\n[]={}9.#é\0\ud7ff-e", '"', "", "'''", "nan"]
VALUES = ["-1", "1e400", "nan", "''", "[]", "[[1]]", "{a={b=1}}", "1979-05-27", "0x_", '"\\ud800"', "9" * 40]
LINES = (
    "run staleness --dry-run", "run ess-collapse lag=0,4 seed=0 --dry-run --json",
    "run sweep.toml recipe=grpo --shard 1/2 --dry-run",
    "run staleness recipe=grpo recipe_args.eps=0.1 --dry-run", "status results", "list tasks --json",
    "show ppo_clip --cite", "objectives compare reinforce ppo_clip", "list claims --json", "list metrics ess",
    "ask m2po better than grpo", "exact ppo_clip,m2po drift=0.5 signal=A --json", "diagnose sweep.toml",
    "run --model nowhere recipe=grpo lag=0", "pipeline slots=16 batch=16 group=4 --batches 5", "--version",
)  # fmt: skip
WORDS = ["", "-", "--", "--json", "-1", "9" * 30, "é", "\udcff", "../../x", "lag=", "=", "lag=1=2",
         "seed=nan", "--out=/proc/x", "recipe=\n", "--help", "task_args.=1", "%s", "{}", "--workers=-1",
         "[x]"]  # fmt: skip


def mangled(text: str, dice: random.Random) -> str:
    if dice.random() < 0.3:
        lines = text.splitlines()
        place = dice.randrange(len(lines))
        key = lines[place].partition("=")[0]
        lines[place] = dice.choice(["", lines[place] + "\n" + lines[place], f"{key}= {dice.choice(VALUES)}"])
        return "\n".join(lines)
    characters = list(text)
    for _ in range(dice.randint(1, 5)):
        place = dice.randrange(len(characters))
        characters[place] = dice.choice([*CHARACTERS, characters[place] * 2])
    return "".join(characters)


def mixed(line: str, dice: random.Random) -> list[str]:
    """Return the words of a command, some of them changed; a run stays a dry run."""
    words = line.split()
    for _ in range(dice.randint(1, 3)):
        place = dice.randrange(len(words) + 1)
        change = dice.choice(["insert", "drop", "double", "garble"])
        if change == "insert":
            words.insert(place, dice.choice(WORDS))
        elif words and place < len(words):
            word = words[place]
            at = dice.randrange(len(word) + 1)
            changed = {
                "drop": [],
                "double": [word, word],
                "garble": [word[:at] + dice.choice(CHARACTERS) + word[at + 1 :]],
            }
            words[place : place + 1] = changed[change]
    if words[:1] == ["demo"]:
        return ["--version"]
    return [*words, "--dry-run"] if words[:1] == ["run"] and "--dry-run" not in words else words


def outcome(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """Run a command; return what is wrong with how it ended, or ""."""
    try:
        main(words)
        return "it returned instead of exiting"
    except SystemExit as stop:
        code = stop.code
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    out, told = capsys.readouterr()
    if code not in (0, 2):
        return f"exit {code}"
    if "Traceback" in told + out:
        return "a traceback"
    return "exit 2 without a word" if code == 2 and "error: " not in told else ""


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.toml").write_text(GOOD)
    return tmp_path


@pytest.mark.slow
def test_a_mangled_file_is_a_dry_run_or_one_message(alone, capsys, campaign):
    trials = campaign.trials(short=40, full=600)
    dice = random.Random(9)
    wrong = []
    for _ in range(trials):
        text = mangled(GOOD, dice)
        (alone / "sweep.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
        if said := outcome(capsys, ["run", "sweep.toml", "--dry-run", "--quiet"]):
            wrong.append((said, text))
    assert not wrong, (len(wrong), wrong[:3])
    assert [path.name for path in alone.iterdir()] == ["sweep.toml"]
    campaign.tried("a mutated TOML file, as a dry run", trials)


@pytest.mark.slow
def test_a_mangled_command_line_is_a_result_or_one_message(alone, capsys, campaign):
    trials = campaign.trials(short=40, full=600)
    dice = random.Random(10)
    wrong = []
    for _ in range(trials):
        words = mixed(dice.choice(LINES), dice)
        if said := outcome(capsys, words):
            wrong.append((said, words))
    assert not wrong, (len(wrong), wrong[:5])
    assert [path.name for path in alone.iterdir()] == ["sweep.toml"]
    campaign.tried("a mutated command line", trials)


TRAIN = (
    "run staleness policy=hf model=model task=running-sum warm_start_steps=0 lag=0 seed=0 recipe=grpo "
    "steps=1 prompts=2 group=2 --workers 0 --quiet --yes --out results"
)


def damaged_models(good: Path, trials: int, dice: random.Random) -> Iterator[tuple[str, Breaking]]:
    """Folders that are broken on purpose; then random damage to config.json and to headers."""
    named = sorted(BROKEN)
    yield from ((n, BROKEN[n]) for n in (dice.sample(named, trials) if trials < len(named) else named))
    head = 8 + int.from_bytes((good / WEIGHTS).read_bytes()[:8], "little")
    for trial in range(trials - len(named)):
        name = (CONFIG, WEIGHTS)[trial % 2]
        body = bytearray((good / name).read_bytes())
        for _ in range(dice.randint(1, 3)):
            body[dice.randrange(min(len(body), head))] = dice.choice(b'\0"{}[],:-9e\xff')
        yield "", written(name, bytes(body))


@pytest.mark.slow
def test_a_broken_model_folder_is_one_message_before_anything_is_written(
    tmp_path, monkeypatch, campaign, capsys
):
    """Random damage may leave a model that works, which then runs, as the sound folder does."""
    monkeypatch.chdir(tmp_path)
    good = tiny_models.write_model(tmp_path / "good", tiny_models.CONFIGS["llama"]())
    trials = campaign.trials(short=12, full=600)
    tried = [("sound", lambda _: None), *damaged_models(good, trials, random.Random(9))]
    for name, breaking in tried:
        breaking(Path(shutil.copytree(good, tmp_path / "model")))
        code, _, said = call(capsys, *TRAIN.split())
        ran = (tmp_path / "results").exists()
        allowed = [(0, True)] * (name not in BROKEN) + [(2, False)] * (name != "sound")
        assert (code, ran) in allowed, (name, said)
        assert ran or (said.startswith("error: ") and "model" in said), (name, said)
        assert not {"Traceback", "weights_only"} & set(said.split()), (name, said)
        shutil.rmtree(tmp_path / "model")
        shutil.rmtree(tmp_path / "results", ignore_errors=True)
    campaign.tried("broken and damaged model folders, to train", len(tried))
