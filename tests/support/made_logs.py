"""The same few sequences in the file format of every stack, written apart from the readers."""

import json
from pathlib import Path

import numpy as np
import torch

STEPS, PROMPTS, GROUP = 2, 3, 4
PAD = 0


def sequences(seed: int = 0) -> list[dict]:
    """Return 24 sequences: ragged prompts, tool tokens in the middle, versions, both signs of A."""
    draw = np.random.default_rng(seed)
    found = []
    for step in range(STEPS):
        for prompt in range(PROMPTS):
            ids = [int(i) for i in draw.integers(1, 9, 2 + prompt)]
            for member in range(GROUP):
                length = int(draw.integers(3, 8))
                mask = [1] * length
                mask[1] = int(draw.random() < 0.5)
                mu = -draw.exponential(1.0, length) * np.array(mask)
                pi = (mu + draw.normal(0, 0.2, length)) * np.array(mask)
                reward = float(member % 2)
                found.append(
                    {"step": step, "index": len(found) % (PROMPTS * GROUP), "group": prompt, "prompt": ids,
                     "token": [int(i) for i in draw.integers(1, 9, length)], "mask": mask, "reward": reward,
                     "mu": [float(np.float32(v)) for v in mu], "pi": [float(np.float32(v)) for v in pi],
                     "advantage": reward - 0.5, "version": 5 + step - member % 2}
                )  # fmt: skip
    return found


def _lines(path: Path, rows: list) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prime_rl(folder: Path) -> None:
    """Two ranks per step; prompt tokens have log-probability 0 and no loss."""
    for step in range(STEPS):
        rows = [one for one in sequences() if one["step"] == step]
        for rank in (0, 1):
            whole = [{"schema_version": 1, "step": step, "rank": rank, "export_sequence_idx": n,
                      "token_ids": one["prompt"] + one["token"],
                      "loss_mask": [False] * len(one["prompt"]) + [bool(m) for m in one["mask"]],
                      "inference_logprobs": [0.0] * len(one["prompt"]) + one["mu"],
                      "trainer_logprobs": [0.0] * len(one["prompt"]) + one["pi"],
                      "advantages": [0.0] * len(one["prompt"]) + [one["advantage"]] * len(one["mask"])}
                     for n, one in enumerate(rows[rank::2])]  # fmt: skip
            _lines(folder / f"step_{step}" / f"rank_{rank}.jsonl", whole)
        (folder / f"step_{step}" / "STABLE").touch()


def nemo_rl(folder: Path) -> None:
    """Lists of one, padded on the right."""
    for step in range(STEPS):
        rows = [one for one in sequences() if one["step"] == step]
        width = max(len(one["prompt"]) + len(one["token"]) for one in rows)
        whole = []
        for n, one in enumerate(rows):
            before, after = len(one["prompt"]), width - len(one["prompt"]) - len(one["token"])

            def padded(values: list, before=before, after=after) -> list:
                return [[0.0] * before + values + [0.0] * after]

            whole.append(
                {"idx": n, "rewards": [one["reward"]], "input_lengths": [width - after],
                 "sample_loss_mask": [1.0], "token_ids": [one["prompt"] + one["token"] + [PAD] * after],
                 "token_loss_mask": padded(one["mask"]), "generation_logprobs": padded(one["mu"]),
                 "prev_logprobs": padded(one["pi"]),
                 "advantages": padded([one["advantage"]] * len(one["mask"]))}
            )  # fmt: skip
        _lines(folder / f"train_data_step{step}.jsonl", whole)


def slime(folder: Path) -> None:
    """Rollout files, and train files of two ranks."""
    folder.mkdir(parents=True)
    for step in range(STEPS):
        rows = [one for one in sequences() if one["step"] == step]
        samples = [{"index": one["index"], "group_index": one["group"],
                    "tokens": one["prompt"] + one["token"], "response_length": len(one["token"]),
                    "reward": one["reward"], "loss_mask": one["mask"],
                    "weight_versions": [str(one["version"])], "rollout_log_probs": one["mu"],
                    "status": "completed"}
                   for one in rows]  # fmt: skip
        torch.save({"rollout_id": step, "samples": samples}, folder / f"rollout_{step}.pt")
        for rank in (0, 1):
            part = rows[rank::2]
            data = {
                "sample_indices": [one["index"] for one in part],
                "log_probs": [torch.tensor(one["pi"]) for one in part],
                "advantages": [torch.full((len(one["mask"]),), one["advantage"]) for one in part],
            }
            torch.save(
                {"rollout_id": step, "rank": rank, "rollout_data": data}, folder / f"train_{step}_{rank}.pt"
            )


def skyrl(folder: Path, left: bool = True) -> None:
    """Tensors with prompts padded on the left; responses on the right, or on the left too."""
    folder.mkdir(parents=True)
    for step in range(STEPS):
        rows = [one for one in sequences() if one["step"] == step]
        most, width = (max(len(one[name]) for one in rows) for name in ("prompt", "token"))

        def right(values: list, size: int = width) -> list:
            return [*values, *[0] * (size - len(values))]

        held = {
            "sequences": torch.tensor(
                [right(o["prompt"][::-1], most)[::-1] + right(o["token"]) for o in rows]
            ),
            "attention_mask": torch.tensor(
                [right([1] * len(o["prompt"]), most)[::-1] + right([1] * len(o["token"])) for o in rows]
            ),
            "response_mask": torch.tensor([right([1] * len(o["token"])) for o in rows]),
            "loss_mask": torch.tensor([right(o["mask"]) for o in rows]),
            "rollout_logprobs": torch.tensor([right(o["mu"]) for o in rows]),
            "action_log_probs": torch.tensor([right(o["pi"]) for o in rows]),
            "advantages": torch.tensor([right([o["advantage"]] * len(o["mask"])) for o in rows]),
        }
        if left:  # the responses too: every tensor ends with its last token
            shift = [width - len(o["token"]) for o in rows]
            held = {
                name: torch.stack([row.roll(n) for row, n in zip(value, shift, strict=True)])
                for name, value in held.items()
            }
        torch.save(held, folder / f"global_step_{step}_training_input.pt")


def open_instruct(folder: Path) -> None:
    """No trainer's log-probabilities; beside the shard lies its metadata."""
    rows = [{"step": o["step"], "sample_idx": o["index"], "prompt_idx": o["group"],
             "prompt_tokens": o["prompt"], "response_tokens": o["token"], "reward": o["reward"],
             "advantage": o["advantage"], "finish_reason": "stop", "dataset": "d", "logprobs": o["mu"]}
            for o in sequences()]  # fmt: skip
    _lines(folder / "run_rollouts_000000.jsonl", rows)
    _lines(folder / "run_metadata.jsonl", [{"run_name": "run"}])


def trinity(folder: Path) -> None:
    """Experiences as lines."""
    rows = [{"eid": {"batch": o["step"], "task": o["group"], "run": o["index"], "step": 0},
             "reward": o["reward"], "prompt_length": len(o["prompt"]), "tokens": o["prompt"] + o["token"],
             "logprobs": o["mu"], "action_mask": o["mask"], "info": {"model_version": o["version"]},
             "advantages": [o["advantage"]] * len(o["token"])}
            for o in sequences()]  # fmt: skip
    _lines(folder / "experiences.jsonl", rows)


def pipeline_rl(folder: Path) -> None:
    """A line per group; log-probabilities of labeled tokens alone."""
    whole = sequences()
    texts = [{"input_ids": o["prompt"] + o["token"], "group_id": f"{o['step']}-{o['group']}",
              "reward": o["reward"],
              "labels": [-100] * len(o["prompt"]) + [t if m else -100
                                                     for t, m in zip(o["token"], o["mask"], strict=True)],
              "logprobs": [v for v, m in zip(o["mu"], o["mask"], strict=True) if m],
              "metadata": {"model_version": o["version"]}}
             for o in whole]  # fmt: skip
    _lines(folder / "0.jsonl", [texts[n : n + GROUP] for n in range(0, len(texts), GROUP)])


def own(folder: Path) -> None:
    """The bench's own record as JSON lines."""
    rows = [{"record": 1, "source": "made", "step": o["step"], "sample": str(o["index"]),
             "group": str(o["group"]), "prompt": o["prompt"], "token": o["token"], "mask": o["mask"],
             "logp_mu": o["mu"], "logp_pi": o["pi"], "advantage": [o["advantage"]] * len(o["mask"]),
             "reward": o["reward"], "version": [o["version"]] * len(o["mask"]),
             "trainer_version": 5 + o["step"]}
            for o in sequences()]  # fmt: skip
    _lines(folder / "made.tokens.jsonl", rows)


BOTH = {"prime-rl": prime_rl, "nemo-rl": nemo_rl, "slime": slime, "skyrl": skyrl, "record": own}
"""Stacks that write both log-probabilities."""
MU_ONLY = {"open-instruct": open_instruct, "trinity": trinity, "pipeline-rl": pipeline_rl}
"""Stacks that write the sampler's alone."""
