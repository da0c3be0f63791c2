"""Planted bugs: every one must make a test fail. Run with `make mutants` or `python tests/mutants.py [PATTERN]`.

A mutant is one replacement in one file and the tests that should notice. The tree is copied once; the
working copy is never touched.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import importlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from mutant import Mutant

ROOT = Path(__file__).parents[1]
LIMIT = 180.0
"""Seconds after which tests that hang count as failed."""


OBJECTIVES = (
    Mutant("reinforce-sign", "testbed/objectives/reinforce/plain.py", "return -batch", "return batch"),
    Mutant("importance-not-detached", "testbed/score.py", "weight_BT.detach()", "weight_BT"),
    Mutant("importance-cap-is-a-floor", "testbed/objectives/reinforce/importance.py", "clamp(max=", "clamp(min="),
    Mutant("ppo-reads-behavior", "testbed/objectives/clipped/ppo_clip.py", 'base="anchor"', 'base="mu"'),
    Mutant("ppo-bounds-swapped", "testbed/objectives/clipped/ppo_clip.py", "1 - eps_low, 1 + eps_high", "1 - eps_high * 2, 1 + eps_low * 2"),
    Mutant("clip-ignores-sign", "testbed/clipping.py", "torch.where(adv >= 0, u > high, u > negative_high)", "u > high"),
    Mutant("clip-cuts-the-wrong-side", "testbed/clipping.py", "(adv <= 0) & (u < low)", "(adv >= 0) & (u < low)"),
    Mutant("clip-lets-cut-tokens-through", "testbed/clipping.py", "cut = above | below", "cut = above & below"),
    Mutant("clip-through-exp", "testbed/clipping.py", "torch.where(cut, torch.zeros_like(log_u), log_u).exp()", "log_u.exp()"),
    Mutant("dual-clip-without-c", "testbed/objectives/clipped/dual_clip.py", "1 + eps_high, c)", "1 + eps_high)"),
    Mutant("dual-clip-off-by-one", "testbed/objectives/clipped/dual_clip.py", "1 + eps_high, c)", "1 + eps_high, 1 + c)"),
    Mutant("gspo-not-spread", "testbed/objectives/clipped/gspo.py", " / length_B1", ""),
    Mutant("gspo-width-for-length", "testbed/objectives/clipped/gspo.py", "batch.mask_BT.sum(-1, keepdim=True)", "logp_BT.shape[-1]"),
    Mutant("gspo-token-ratio", "testbed/objectives/clipped/gspo.py", "log_s_BT = log_geometric(", "from testbed.ratios import log_token\n    log_s_BT = log_token("),
    Mutant("zero-times-infinity", "testbed/score.py", "torch.where(batch.adv_BT != 0, weight_BT.detach(), torch.zeros_like(weight_BT))", "weight_BT.detach()", "tests/test_objective_limits.py"),
    Mutant("cispo-lower-bound-on", "testbed/objectives/reinforce/cispo.py", "eps_low: float = 1.0", "eps_low: float = 0.28"),
    Mutant("cispo-absolute-bound", "testbed/objectives/reinforce/cispo.py", "1 + eps_high", "eps_high"),
    Mutant("minpro-sequence-minimum", "testbed/ratios.py", "cummin(-1).values[..., :-1]", "flip(-1).cummin(-1).values[..., :-1]"),
    Mutant("minpro-includes-itself", "testbed/ratios.py", "torch.cat([first_B1, before_BT], dim=-1)", "padded_BT.cummin(-1).values"),
    Mutant("topr-tapers-positives", "testbed/objectives/reinforce/topr.py", "batch.adv_BT > 0", "batch.adv_BT < 0"),
    Mutant("topr-token-ratio", "testbed/objectives/reinforce/topr.py", "tapered_BT = log_sequence(", "from testbed.ratios import log_token\n    tapered_BT = log_token("),
    Mutant("m2po-first-moment", "testbed/objectives/clipped/m2po.py", "log_rho_BT.square().masked_fill", "log_rho_BT.abs().masked_fill"),
    Mutant("m2po-all-tokens", "testbed/objectives/clipped/m2po.py", "batch.mask_BT & (batch.adv_BT * log_rho_BT > 0)", "batch.mask_BT & (log_rho_BT != 0)"),
    Mutant("m2po-single-token-budget", "testbed/objectives/clipped/m2po.py", "ordered_K.cumsum(-1) / rank_K <= tau", "ordered_K <= tau"),
    Mutant("m2po-strict", "testbed/objectives/clipped/m2po.py", "<= tau", "<= tau / 2"),
    Mutant("mask-after-cumsum", "testbed/ratios.py", "torch.where(mask_BT, difference, torch.zeros((), dtype=dtype, device=difference.device))", "difference"),
    Mutant("ratio-inverted", "testbed/ratios.py", "logp_BT.to(dtype) - other_BT.to(dtype)", "other_BT.to(dtype) - logp_BT.to(dtype)"),
    Mutant("prefix-exclusive", "testbed/ratios.py", "return log_token(logp_BT, batch, base).cumsum(-1)", "x = log_token(logp_BT, batch, base)\n    return x.cumsum(-1) - x"),
    Mutant("sequence-is-a-mean", "testbed/ratios.py", "_at_tokens(log_token(logp_BT, batch, base).sum(", "_at_tokens(log_token(logp_BT, batch, base).mean("),
    Mutant("low-precision-ratios", "testbed/ratios.py", "torch.promote_types(logp_BT.dtype, torch.float32)", "torch.bfloat16"),
    Mutant("weight-sign", "testbed/effective.py", "return -gradient_BT", "return gradient_BT"),
)  # fmt: skip

REST = (
    Mutant("token-mean-counts-padding", "testbed/aggregate.py", "/ mask_BT.sum((-2, -1))", "/ mask_BT[..., 0].numel() / mask_BT.shape[-1]", "tests/test_aggregate.py"),
    Mutant("sequence-mean-by-width", "testbed/aggregate.py", "masked_BT.sum(-1) / mask_BT.sum(-1)", "masked_BT.mean(-1)", "tests/test_aggregate.py"),
    Mutant("constant-without-batch", "testbed/aggregate.py", "(mask_BT.shape[-2] * width)", "width", "tests/test_aggregate.py"),
    Mutant("group-std-convention", "testbed/advantages/grouped.py", 'std == "unbiased" else 0', 'std == "unbiased" else 1', "tests/test_advantages.py"),
    Mutant("leave-one-out-includes-self", "testbed/advantages/grouped.py", "(total_B - signals.reward_B) / others_B", "total_B / others_B", "tests/test_advantages.py"),
    Mutant("kish-on-log-weights", "testbed/diagnostics.py", "torch.logsumexp(2 * log_p, -1)", "torch.logsumexp(log_p, -1)", "tests/test_diagnostics.py"),
    Mutant("k3-inverted", "testbed/diagnostics.py", '"mu_pi_k3": rho_BT - 1 - log_rho_BT', '"mu_pi_k3": rho_BT - 1 + log_rho_BT', "tests/test_diagnostics.py"),
    Mutant("nonfinite-read-as-one", "testbed/diagnostics.py", "mask_BT = batch.mask_BT & finite_BT", "mask_BT = batch.mask_BT", "tests/test_diagnostics.py"),
    Mutant("quantile-off-by-one", "testbed/diagnostics.py", "torch.ceil(q * count) - 1", "torch.floor(q * count)", "tests/test_diagnostics.py"),
    Mutant("histogram-closed-right", "testbed/diagnostics.py", "right=True", "right=False", "tests/test_diagnostics.py"),
    Mutant("lag-plus-one", "testbed/staleness/exact_lag.py", "np.array([lag])", "np.array([lag + 1])", "tests/test_staleness.py"),
    Mutant("lag-reads-present", "testbed/staleness/versions.py", "version_RS % self.depth_R[:, None]", "self.newest % self.depth_R[:, None] + 0 * version_RS", "tests/test_staleness.py"),
    Mutant("adam-without-bias-correction", "testbed/optimizers.py", "(1 - self.beta1**self.count)", "1", "tests/test_optimizers.py"),
    Mutant("registry-overwrites", "testbed/registry.py", "if entry.name in self._entries:", "if False:", "tests/test_registry.py"),
    Mutant("batch-accepts-nan", "testbed/batch.py", "bad = mask_BT & ~torch.isfinite(value)", "bad = mask_BT & torch.isnan(value) & False", "tests/test_batch.py"),
    Mutant("loop-ignores-lag", "testbed/train.py", "silence_failed(generated.rollout)", "silence_failed(world.generate(theta_RP, step))", "tests/test_train.py -k bandit"),
    Mutant("vcpo-linear", "testbed/step_size.py", "factor.sqrt() if rule == \"sqrt\" else factor", "factor", "tests/test_train.py -k vcpo"),
    Mutant("divergence-spreads", "testbed/train.py", "theta_RP = torch.where(alive_R[:, None], moved_RP, theta_RP)", "theta_RP = moved_RP * alive_R.all()", "tests/test_train.py -k diverges"),
    Mutant("minus-zero-is-another-run", "testbed/config.py", "float(value) + 0.0", "float(value)", "tests/test_run_identity.py"),
    Mutant("order-of-arguments-matters", "testbed/config.py", "tuple(sorted((k, _whole(v)) for k, v in value))", "tuple((k, _whole(v)) for k, v in value)", "tests/test_run_identity.py"),
    Mutant("one-is-not-one-point-zero", "testbed/config.py", "return int(value) if isinstance(value, float) and value.is_integer() else value", "return value", "tests/test_run_identity.py"),
    Mutant("arms-share-a-recipe", "testbed/train.py", "recipe[name].bind(**dict(arguments))()", "recipe[runs[0].recipe].bind()()", "tests/test_train.py -k bandit"),
)  # fmt: skip


def collect() -> tuple[Mutant, ...]:
    """Return the bugs of this file and of every mutants_*.py beside it."""
    found = OBJECTIVES + REST
    for path in sorted(Path(__file__).parent.glob("mutants_*.py")):
        found += importlib.import_module(path.stem).MUTANTS
    names = [mutant.name for mutant in found]
    assert len(set(names)) == len(names), "two planted bugs share a name"
    return found


MUTANTS = collect()


def copy_tree(target: Path) -> None:
    """Copy what the tests need."""
    parts = ("envs", "testbed", "analysis", "paper_figs", "docs", "tests", "pyproject.toml", "README.md")
    for name in parts:
        source = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__", "out")
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, target / name, **({"ignore": ignore} if source.is_dir() else {}))


def killer(mutant: Mutant, tree: Path) -> str | None:
    """Return the first test that fails with the bug planted, None if all pass.

    Raises ValueError when the bug cannot be planted.
    """
    path = tree / mutant.file
    text = path.read_text()
    if mutant.old not in text:
        raise ValueError(f"{mutant.name}: {mutant.file} does not contain {mutant.old!r}")
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        return failing(mutant.tests, tree)
    finally:
        path.write_text(text)


def failing(tests: str, tree: Path) -> str | None:
    """Return the id of the test that fails or hangs, and leave no process behind that the tests started."""
    words = ["-x", "-q", "-p", "no:cacheprovider", *shlex.split(tests)]
    # No color and no shortening to the width of a terminal: the ids are read.
    environment = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "400", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pytest", *words]
    with tempfile.TemporaryFile("w+") as out:
        quiet = {"stdout": out, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=tree, env=environment, start_new_session=True, **quiet)
        try:
            code = process.wait(timeout=LIMIT)
            # 1 is "tests failed"; 2 is "interrupted", for a bug that breaks the import itself.
            if code < 0:
                return "the process died"
            if code not in (1, 2):
                return None
        except subprocess.TimeoutExpired:
            return "no end within the time limit"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        return first_failure(out.read())


def first_failure(report: str) -> str:
    """Return the first failing test in pytest's summary, "tests/test_x.py::test_y[z]"."""
    found = re.search(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)(?: - |$)", report, re.M)
    return found[1] if found else "a failure without a name"


def claim_of(test: str) -> str:
    """Return the claim that a test of test_claims_exact.py judged, else the test's own name."""
    found = re.search(r"test_claims_exact\.py::test_an_exact_claim_is_supported\[(.*)\]$", test)
    return found[1] if found else test.rpartition("::")[2]


def catalog(killers: dict[str, str]) -> str:
    """Return the table "mutant, first claim that kills it" of the bugs named m1-… to m25-…, in their order."""
    numbered = {name: re.match(r"m(\d+)-", name) for name in killers}
    rows = sorted((int(match[1]), name) for name, match in numbered.items() if match)
    lines = [f"| M{number} | {name} | {claim_of(killers[name]) or 'SURVIVED'} |" for number, name in rows]
    return (
        "\n".join(["", "| | mutant | first claim that kills it |", "|---|---|---|", *lines]) if rows else ""
    )


def main(pattern: str = "*") -> int:
    """Plant every matching bug, print score and table; return the number of survivors."""
    chosen = [mutant for mutant in MUTANTS if fnmatch.fnmatch(mutant.name, pattern)]
    killers: dict[str, str] = {}
    # Tests that fail without any bug would kill every one.
    healthy = functools.cache(lambda tests: failing(tests, Path(folder)) is None)
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        for index, mutant in enumerate(chosen, start=1):
            if not healthy(mutant.tests):
                killers[mutant.name] = ""
                print(f"{index:3}/{len(chosen)} NO VERDICT, '{mutant.tests}' fails as it is: {mutant.name}")
                continue
            test = killers[mutant.name] = killer(mutant, Path(folder)) or ""
            word = "killed  " if test else "SURVIVED"
            by = f" by {claim_of(test)}" if test and re.match(r"m\d+-", mutant.name) else ""
            print(f"{index:3}/{len(chosen)} {word} {mutant.name}{by}", flush=True)
    print(catalog(killers))
    dead = sum(map(bool, killers.values()))
    print(f"{dead} of {len(chosen)} planted bugs killed")
    return len(chosen) - dead


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
