"""What a GPU is asked once: whether it computes what the CPU does, how fast, in how much memory. `make gpu`.

Writes docs/gpu.md with the device's name, failures included. Parts that time does not reach are listed:
the whole takes at most LIMIT seconds. Answers are kept one by one beside the page, so that after a kill the
same command goes on. `--rehearse FOLDER` runs the same code on the CPU at tiny sizes.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support import tiny_models  # noqa: E402
from support.fixtures import batch_of  # noqa: E402
from support.small_runs import TOY  # noqa: E402

from envs.tokens.running_sum import RunningSum  # noqa: E402
from envs.tokens.token_task import TokenTask  # noqa: E402
from testbed.losses.aggregate import aggregate  # noqa: E402
from testbed.objectives import objective  # noqa: E402
from testbed.policies.hf.hf_policy import HuggingFacePolicy  # noqa: E402
from testbed.policies.hf.model_folder import quiet_transformers  # noqa: E402
from testbed.policies.toy.toy_transformer import ToyTransformer  # noqa: E402
from testbed.training.loop import train  # noqa: E402

LIMIT = 460.0
"""Seconds of one call: the last part that begins still has to end within eight minutes."""
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 5e-2, "training": 1e-2}
"""Most by which CPU and GPU may differ, relative to the largest number: sums run in another order."""
MODELS = {"0.1 B": (768, 12, 32_000), "0.5 B": (896, 24, 151_936), "1 B": (1536, 28, 151_936)}
SMALLEST = {"tiny": (64, 2, 300)}
SCHEDULES = {
    "exact": (2, {}), "uniform": (1, {"slices": 2}), "in-flight": (0, {"tokens": 2}),
    "partial": (0, {"tokens": 2}), "replay": (0, {"share": 0.5}), "latency": (0, {"speed": 1.0}),
}  # fmt: skip
HOW = {
    "": {"dtype": "float32"}, ", bfloat16": {"dtype": "bfloat16"}, ", LoRA": {"dtype": "float32", "lora": 2},
}  # fmt: skip
"""Ways to load a model, and what they are called."""
LAWS = ("off", "top-p", "top-k", "temperature", "logit-noise")


class Tokens(TokenTask):
    """Random prompts over any vocabulary, responses of full length: something to measure with."""

    def __init__(self, vocabulary: int, prompt: int, response: int) -> None:
        self.symbols = tuple(str(v) for v in range(vocabulary))
        self.prompt_length, self.response_length = prompt, response

    def prompts(self, rng, n):
        """Independent uniform tokens."""
        return rng.integers(0, self.vocabulary, size=(n, self.prompt_length))

    def score(self, prompt_NQ, response_NT, mask_NT):
        """Nothing."""
        return np.zeros(len(prompt_NQ))

    def teacher(self, prompt_NQ, rng, noise):
        """Refuse: random weights are measured, and nothing is trained from a teacher."""
        raise NotImplementedError("the task of the GPU script has no teacher; start without a warm start")


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest number."""
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    return float((a - b).abs().max() / a.abs().max().clamp(min=1e-12))


def checks(device: str, folder: Path, architectures: int) -> Iterator[tuple[str, Callable[[], float], float]]:
    """Yield (what, how much CPU and device differ, most that they may)."""
    for name in sorted(objective):
        if "@" not in name:
            yield f"objective {name}", lambda name=name: objective_gap(name, device), TOLERANCE["float64"]
    configs = {**tiny_models.CONFIGS, **tiny_models.MORE_CONFIGS}
    for name, make in list(configs.items())[:architectures]:
        path = tiny_models.write_model(folder / name.replace(" ", ""), make())
        for how, options in HOW.items():
            gap = lambda path=path, options=options: model_gap(path, device, **options)  # noqa: E731
            yield f"model {name}{how}", gap, TOLERANCE[options["dtype"]]
    toy = dataclasses.replace(TOY, steps=2, learning_rate=1e-3)
    yield "policy toy", lambda: training_gap(toy, device), TOLERANCE["training"]
    yield "policy toy, twice", lambda: training_gap(toy, device, device), 0.0
    for name, (lag, arguments) in SCHEDULES.items():
        run = dataclasses.replace(toy, staleness=name, lag=lag, staleness_args=tuple(arguments.items()))
        yield f"schedule {name}", lambda run=run: training_gap(run, device), TOLERANCE["training"]
    for name in LAWS:
        run = dataclasses.replace(toy, mismatch=name)
        yield f"engine {name}", lambda run=run: training_gap(run, device), TOLERANCE["training"]


def objective_gap(name: str, device: str) -> float:
    """Return the gap of an objective's gradient in float64."""
    grads = []
    for where in ("cpu", device):
        logp_BT, batch = batch_of()
        leaf_BT = logp_BT.to(where).requires_grad_()
        loss_BT = objective[name].function(leaf_BT, batch.map(lambda x, where=where: x.to(where)))
        mask_BT = batch.mask_BT.to(where)
        grads.append(torch.autograd.grad(aggregate(loss_BT, mask_BT, "token_mean"), leaf_BT)[0])
    return difference(*grads)


def model_gap(path: Path, device: str, **options) -> float:
    """Return the gap of log-probabilities and gradient of a model's own samples."""
    task, rng, found = tiny_models.Echo(), np.random.default_rng(0), []
    prompt_RNQ, uniform_RBT = torch.as_tensor(task.prompts(rng, 4))[None], rng.random((1, 8, 5))
    drawn = None
    for where in ("cpu", device):
        policy = HuggingFacePolicy(path, task, device=where, micro_tokens=40, **options)
        theta_RP = policy.initial([0]).to(where).requires_grad_()
        drawn = drawn or policy.sample(theta_RP.detach(), prompt_RNQ, 2, uniform_RBT)
        logp_RBT = policy.logp(theta_RP, prompt_RNQ.to(where), drawn[0].to(where), drawn[1].to(where))
        found.append((logp_RBT, torch.autograd.grad(logp_RBT.sum(), theta_RP)[0]))
    return max(difference(a, b) for a, b in zip(*found, strict=True))


def training_gap(run, device: str, other: str = "cpu") -> float:
    """Return the gap of the gradient norms of a short training run on two devices."""
    norms = [torch.tensor(np.asarray(train(dataclasses.replace(run, device=where))["actor/grad_norm"]))
             for where in (other, device)]  # fmt: skip
    return difference(*norms)


def measures(device: str, folder: Path, models: dict, batch: tuple[int, int, int, int]) -> Iterator[tuple]:
    """Yield (what, measure) of sampling and learning at random weights; measure -> (tokens/s, peak bytes)."""
    import transformers

    prompts, group, prompt, response = batch
    for name, (width, layers, vocabulary) in models.items():
        path = folder / f"{width}-{layers}"
        config = transformers.Qwen2Config(
            vocab_size=vocabulary, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
            num_attention_heads=width // 64, num_key_value_heads=max(width // 448, 1),
            max_position_embeddings=prompt + response, tie_word_embeddings=True,
        )  # fmt: skip
        with quiet_transformers():
            made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
            made.save_pretrained(str(path))
        task = Tokens(vocabulary, prompt, response)
        for how, arguments in (("all weights", {}), ("LoRA 16", {"lora": 16})):
            for what in ("sample", "learn", *(() if arguments else (WHOLE, *PEERS))):
                given = (path, task, device, arguments, (prompts, group), what)
                yield f"{name}, {how}: {what}", lambda given=given: measured(*given)
    for replicas in TOYS if device == "cuda" else TOYS[:1]:
        yield f"toy LLM x {replicas}: steps of all", lambda replicas=replicas: toy_steps(device, replicas)


def timed(device: str, once: Callable[[], None]) -> tuple[float, int]:
    """Return seconds and peak memory of what is done, the second time."""
    once()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    once()
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    return seconds, torch.cuda.max_memory_allocated() if device == "cuda" else 0


def toy_steps(device: str, replicas: int) -> tuple[float, int]:
    """Return replicas times steps per second of the toy LLM: one batch sampled and one gradient each."""
    task, rng = RunningSum(), np.random.default_rng(0)
    policy = ToyTransformer(task, device=device)
    theta_RP = policy.initial(tuple(range(replicas))).to(device)
    prompt_RNQ = torch.as_tensor(np.stack([task.prompts(rng, 8)] * replicas), device=device)
    uniform_RBT = torch.as_tensor(rng.random((replicas, 64, task.response_length)), device=device)

    def once() -> None:
        token_RBT, mask_RBT, _ = policy.sample(theta_RP, prompt_RNQ, 8, uniform_RBT)
        leaf_RP = theta_RP.clone().requires_grad_()
        torch.autograd.grad(policy.logp(leaf_RP, prompt_RNQ, token_RBT, mask_RBT).sum(), leaf_RP)

    seconds, peak = timed(device, once)
    return replicas / seconds, peak


def measured(path, task, device, arguments, batch, what) -> tuple[float, int]:
    """Return tokens per second and peak memory of one way to sample or learn, the second time it is done."""
    prompts, group = batch
    rng = np.random.default_rng(0)
    micro = 0 if what == WHOLE else MICRO
    policy = HuggingFacePolicy(path, task, device, dtype="bfloat16", micro_tokens=micro, **arguments)
    theta_RP = policy.initial([0]).to(device)
    prompt_RNQ = torch.as_tensor(task.prompts(rng, prompts), device=device)[None]
    shape = (1, prompts * group, task.response_length)
    token_RBT = torch.as_tensor(rng.integers(0, task.vocabulary, size=shape), device=device)
    mask_RBT = torch.ones_like(token_RBT, dtype=torch.bool)

    def once() -> None:
        if what == "sample":
            policy.sample(theta_RP, prompt_RNQ, group, rng.random(shape))
            return
        leaf_RP = theta_RP.clone().requires_grad_()
        if what in ("learn", WHOLE):
            logp = policy.logp(leaf_RP, prompt_RNQ, token_RBT, mask_RBT)
        else:
            logp = PEERS[what](policy._model, leaf_RP[0], prompt_RNQ[0], token_RBT[0], group)
        torch.autograd.grad(logp.sum(), leaf_RP)

    seconds, peak = timed(device, once)
    return token_RBT.numel() / seconds, peak


def peer_features(model, theta_P, prompt_NQ, token_BT, group, logits: bool) -> torch.Tensor:
    """Return what a trainer without a shared prompt computes before each response token: whole rows."""
    weights = {f"model.{n}": w for n, w in model.weights(theta_P).items()}
    row_BQ = torch.cat([prompt_NQ.repeat_interleave(group, 0), token_BT], 1)
    whole = torch.nn.Module()
    whole.model = model.module
    inner = (lambda **g: whole.model(**g).logits) if logits else (
        lambda **g: whole.model.base_model(**g).last_hidden_state
    )  # fmt: skip
    whole.forward = inner
    given = {"input_ids": row_BQ[:, :-1], "use_cache": False}
    return torch.func.functional_call(whole, weights, (), given)[:, prompt_NQ.shape[1] - 1 :]


def with_full_logits(model, theta_P, prompt_NQ, token_BT, group) -> torch.Tensor:
    """Return log-probabilities as TRL takes them by default: of all logits at once."""
    from trl.trainer.utils import selective_log_softmax

    logits_BTV = peer_features(model, theta_P, prompt_NQ, token_BT, group, logits=True)
    return selective_log_softmax(logits_BTV.float(), token_BT)


def with_liger(model, theta_P, prompt_NQ, token_BT, group) -> torch.Tensor:
    """Return log-probabilities as the loss of Liger takes them: in chunks of rows and of the vocabulary."""
    from liger_kernel.chunked_loss import fused_linear_ppo

    feature_BTH = peer_features(model, theta_P, prompt_NQ, token_BT, group, logits=False)
    weight_VH = model.head(model.weights(theta_P), model.rows).weight_VH
    found = fused_linear_ppo._ChunkedSelectiveLogProbFunction.apply(
        feature_BTH.flatten(0, 1), weight_VH, token_BT.flatten(), None, 1.0, 4096
    )
    return found[0] if isinstance(found, tuple) else found


PEERS = {"learn, TRL's full logits": with_full_logits, "learn, Liger's chunks": with_liger}
WHOLE, MICRO = "learn, whole batch", 8192
"""What takes the whole batch at once, as the peers do; tokens of a part otherwise."""
NOT_REACHED = "not reached"
TOYS = (32, 256, 2048)
"""Replicas of the toy LLM."""


def attempted(ask: Callable[[], object], left: float) -> object:
    """Return the answer, or in words why there is none."""
    if left <= 0:
        return NOT_REACHED
    try:
        return ask()
    except Exception as error:  # a failure is a result too
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:120]


def page(device: str, agreed: list, speeds: list, seconds: float) -> str:
    """Return the page."""
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU (rehearsal)"
    bad = [row for row in agreed if not isinstance(row[1], float) or not row[1] <= row[2]]
    lines = [
        "# What a GPU says", "",
        f"Device: {name}; torch {torch.__version__}. Written by `make gpu` in {seconds:.0f} s.", "",
        f"## CPU and device agree in {len(agreed) - len(bad)} of {len(agreed)} checks", "",
        "| check | largest difference | tolerance | |", "|---|---|---|---|",
    ]  # fmt: skip
    for what, gap, most in agreed:
        shown = f"{gap:.2g}" if isinstance(gap, float) else gap
        lines.append(f"| {what} | {shown} | {most:g} | {'' if (what, gap, most) not in bad else 'fails'} |")
    lines += [
        "", "## Speed and memory", "",
        f"The policies here learn in parts of {MICRO:,} tokens, each of which runs forward twice; TRL and "
        "Liger take the whole batch at once, as does the line that says so.", "",
        "| what | tokens/s (toy: replicas x steps/s) | peak memory |", "|---|---|---|",
    ]  # fmt: skip
    for what, found in speeds:
        if isinstance(found, tuple):
            lines.append(f"| {what} | {found[0]:,.0f} | {found[1] / 2**30:.2f} GiB |")
        else:
            lines.append(f"| {what} | {found} | |")
    return "\n".join(lines) + "\n"


class Answers:
    """What was answered so far, a JSON line each: (part, question) -> answer."""

    def __init__(self, path: Path) -> None:
        self.path, self.found = path, {}
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]  # a kill may leave half of the last one
        path.write_text("".join(whole))
        for part, what, answer in map(json.loads, whole):
            self.found[part, what] = tuple(answer) if isinstance(answer, list) else answer

    def ask(self, part: str, what: str, ask: Callable[[], object], left: float) -> object:
        """Return the answer that is kept, or ask and keep it."""
        if (part, what) not in self.found:
            answer = self.found[part, what] = attempted(ask, left)
            if answer != NOT_REACHED:
                with self.path.open("a") as file:
                    file.write(json.dumps([part, what, answer]) + "\n")
        return self.found[part, what]


def run(
    device: str,
    path: Path,
    models: dict,
    batch: tuple[int, int, int, int],
    limit: float,
    architectures: int = 99,
) -> int:
    """Ask everything that is not answered yet, write the page, return how many checks failed."""
    began, answers = time.monotonic(), Answers(path.with_suffix(".jsonl"))
    left = lambda: limit - (time.monotonic() - began)  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        agreed = [
            (what, answers.ask("check", what, ask, left()), most)
            for what, ask, most in checks(device, Path(folder), architectures)
        ]
        speeds = []
        if left() > 0:
            speeds = [
                (what, answers.ask("speed", what, ask, left()))
                for what, ask in measures(device, Path(folder), models, batch)
            ]
    path.write_text(page(device, agreed, speeds, time.monotonic() - began))
    answers.path.unlink()
    return sum(not isinstance(gap, float) or not gap <= most for _, gap, most in agreed)


def rehearse(folder: Path, limit: float = LIMIT) -> int:
    """Run everything on the CPU at tiny sizes; return how many checks failed."""
    return run("cpu", folder / "gpu.md", SMALLEST, (2, 2, 8, 8), limit, architectures=2)


def main() -> int:
    """Return the exit code: 0 when every check agrees."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", type=Path, help="run on the CPU and write the page to this folder")
    given = parser.parse_args()
    if given.rehearse:
        return 1 if rehearse(given.rehearse) else 0
    if not torch.cuda.is_available():
        print("error: no CUDA device; `--rehearse FOLDER` runs the same on the CPU.", file=sys.stderr)
        return 2
    return 1 if run("cuda", ROOT / "docs" / "gpu.md", MODELS, (8, 8, 128, 256), LIMIT) else 0


if __name__ == "__main__":
    sys.exit(main())
