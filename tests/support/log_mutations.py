"""Damaged training logs: one mutation each, in bytes or in values, of a log of every format."""

import contextlib
import io
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from support import made_logs

from analysis.logs.diagnosis import Diagnosis, diagnose
from paper_figs.commands.diagnose import report
from paper_figs.diagnosis_page import page
from testbed.cli import show
from testbed.errors import UserError
from testbed.logs.readers import read_any
from testbed.logs.record import Log, parquet_bytes
from testbed.logs.scalars import ScalarLog

HOSTILE: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: True, lambda: -1, lambda: 0.5, lambda: 2**70, lambda: 10**400, lambda: 1e300,
    lambda: float("inf"), lambda: float("-inf"), lambda: float("nan"), lambda: "", lambda: "\u2028\x85",
    lambda: "\ud800", lambda: "$x_{", lambda: [], lambda: {}, lambda: [[1.0], [2.0]], lambda: [[[]]],
    lambda: {"a": {"b": []}}, lambda: [1, "a", None], lambda: [1e308] * 7, lambda: -1e308, lambda: 5e-324,
)  # fmt: skip
BYTES = (b"\xef\xbb\xbf", b"\x00", b"\n", b"1e400", b"[" * 3000, b"NaN", b"\xff", b"}", b",", b'"')


def verl(folder: Path) -> None:
    """Write two prompts with two answers each."""
    rows = [{"input": f"q{n // 2}", "output": f"a{n}", "gts": "", "score": n, "step": 3} for n in range(4)]
    made_logs._lines(folder / "3.jsonl", rows)


def trl(folder: Path) -> None:
    """Write one table of completions."""
    folder.mkdir(parents=True)
    table = {"step": [7] * 2, "prompt": ["q"] * 2, "completion": ["a", "b"], "exact": [1.0, 0.0]}
    pq.write_table(pa.table(table | {"advantage": [0.7, -0.7]}), folder / "completions_00007.parquet")


def areal(folder: Path) -> None:
    """Write a task of two samples per version."""
    for version in (0, 3):
        rows = [{"task_id": 7 + version, "sample_idx": n, "seqlen": 5, "prompt_len": 2, "head_version": 0,
                 "tail_version": version, "reward": float(n), "prompt": "q", "completion": f"a{n}"}
                for n in range(2)]  # fmt: skip
        made_logs._lines(folder / "rollout" / str(version) / f"{7 + version}.jsonl", rows)


def trl_scalars(folder: Path) -> None:
    """Write the state of a trainer after three logged steps, as transformers does."""
    from transformers import TrainerState

    folder.mkdir(parents=True)
    names = {"loss": 0.1, "reward": 0.5, "entropy": 1.0, "sampling/sampling_logp_difference/mean": 0.02}
    state = TrainerState(global_step=3, log_history=[names | {"step": n} for n in (1, 2, 3)])
    state.save_to_json(str(folder / "trainer_state.json"))


def metrics_jsonl(folder: Path) -> None:
    """Write five steps as verl's file logger does."""
    names = {"actor/grad_norm": 1.0, "rollout_corr/kl": 0.002, "rollout_corr/rollout_is_eff_sample_size": 0.9}
    rows = [{"step": n, "data": names} for n in range(4)]
    made_logs._lines(folder / "run.jsonl", [*rows, {"step": 4, "data": {"rollout_corr/kl": 0.003}}])


SCALARS = {"trl-scalars": trl_scalars, "metrics-jsonl": metrics_jsonl}
FORMATS = made_logs.BOTH | made_logs.MU_ONLY | {"verl": verl, "trl": trl, "areal": areal} | SCALARS


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every (container, key) below a value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in pairs:
        yield value, key
        yield from places(below)


def changed(value: Any, draw: random.Random) -> None:
    """Replace, remove or double one place of a value, in place."""
    # A field or an item: the long lists would else take nearly every draw.
    found = list(places(value))
    fields = [pair for pair in found if isinstance(pair[0], dict)]
    holder, key = draw.choice(fields if fields and draw.random() < 0.6 else found)
    if (how := draw.random()) < 0.75:
        holder[key] = draw.choice(HOSTILE)()
    elif how < 0.9 or isinstance(holder, dict):
        del holder[key]
    else:
        holder.insert(key, holder[key])


def damaged(path: Path, draw: random.Random) -> None:
    """Damage one file: its bytes, or the values that it holds."""
    data = path.read_bytes()
    if draw.random() < 0.35:
        at = draw.randrange(len(data))
        more = draw.choice(BYTES)
        data = draw.choice(
            (data[:at], data[:at] + more + data[at:], data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)])
             + data[at + 1:], data[:at] + data[at + draw.randrange(1, 50):])
        )  # fmt: skip
        path.write_bytes(data)
    elif path.suffix == ".json":
        held = json.loads(data)
        changed(held, draw)
        path.write_text(json.dumps(held, indent=2))
    elif path.suffix == ".jsonl":
        rows = [json.loads(line) for line in data.decode().split("\n") if line]
        changed(rows, draw)
        path.write_text("\n".join(json.dumps(row, indent=draw.choice((None, None, 1))) for row in rows))
    elif path.suffix == ".pt":
        held = torch.load(path, weights_only=True)
        changed(held, draw)
        torch.save(held, path)
    else:
        rows = pq.read_table(path).to_pylist()
        changed(rows, draw)
        with contextlib.suppress(pa.ArrowException, TypeError, OverflowError, UnicodeError, ValueError):
            pq.write_table(pa.Table.from_pylist([row for row in rows if isinstance(row, dict)]), path)


def diagnosed(log: Log | ScalarLog) -> Diagnosis:
    """Return what a log says; one objective is asked about tokens."""
    return diagnose(log, None if isinstance(log, ScalarLog) else ["ppo_clip"])


def tracebacks(folder: Path, trials: range) -> list[str]:
    """Return what raised anything but UserError in reading, diagnosing, printing, writing, per trial seed."""
    import traceback

    names, found = list(FORMATS), []
    sources: dict[str, dict[str, bytes]] = {}
    for name in names:
        FORMATS[name](folder / name)
        files = [path for path in (folder / name).rglob("*") if path.is_file()]
        sources[name] = {str(path): path.read_bytes() for path in files}
    for trial in trials:
        draw, name = random.Random(trial), names[trial % len(names)]
        target = Path(draw.choice([path for path in sources[name] if not path.endswith("STABLE")]))
        try:
            damaged(target, draw)
            with contextlib.redirect_stdout(io.StringIO()):
                log = read_any([folder / name])
                result = diagnosed(log)
                report(result)
                show.as_json(result.plain())
                if trial % 10 == 0:  # drawing takes longer than all the rest
                    page(result).encode()
                if not isinstance(log, ScalarLog):
                    parquet_bytes([one.plain() for one in log.sequences])
        except UserError as error:
            str(error).encode("utf-8", "backslashreplace")
        except Exception:
            found.append(f"{name}, seed {trial}: {traceback.format_exc()[-900:]}")
        for path, data in sources[name].items():
            Path(path).write_bytes(data)
    return found
