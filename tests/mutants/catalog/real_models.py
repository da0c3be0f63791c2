"""Bugs planted in what real models need: micro-batches, adapters, samplers, checkpoints, tasks from files."""

from mutants.mutant import Mutant

MICRO, IN_MICRO = "testbed/policies/hf/micro_batches.py", "tests/unit/policies/test_micro_batches.py"

JSONL, IN_JSONL = "envs/tokens/jsonl.py", "tests/unit/envs/test_jsonl.py"
VERIFIERS, CHAT = "envs/tokens/verifiers.py", "testbed/policies/hf/chat_task.py"
IN_CHAT = "tests/unit/policies/test_chat_task.py -m not(slow)"
SAMPLER, IN_SAMPLER = "testbed/policies/hf/sampler.py", "tests/unit/policies/test_hf_sampler.py -m not(slow)"

LORA, IN_LORA = "testbed/policies/hf/lora.py", "tests/unit/policies/test_lora.py -m not(slow)"
FLAT, GENERATION = "testbed/policies/hf/flat_parameters.py", "testbed/worlds/generation.py"

POINT, POINT_FILES = "testbed/training/checkpoint.py", "testbed/results/checkpoint_files.py"
IN_POINT = "tests/unit/training/test_checkpoint.py -m not(slow)"

ENGINES, IN_ENGINES = "testbed/policies/hf/engines.py", "tests/unit/policies/test_engines.py"
NARROW = "tests/unit/staleness/test_narrow_versions.py"

RANKS, IN_RANKS = "testbed/policies/hf/ranks.py", "tests/unit/policies/test_ranks.py -m not(slow)"
LIVE, IN_LIVE = "testbed/training/live.py", "tests/unit/training/test_live_rows.py"
CAUSAL, CHUNKED = "testbed/policies/hf/causal_model.py", "testbed/policies/hf/chunked_logp.py"
IN_CHUNKED, IN_ALP = "tests/unit/policies/test_chunked_logp.py", "tests/unit/worlds/test_perturbed.py -k real"

MUTANTS = (
    Mutant("base-without-end-token", "testbed/cli/pretrained.py", "    finish_folder(out)\n", "", "tests/unit/cli/test_validate.py -k guide_run"),
    Mutant("data-dedupe-keeps-the-last", "envs/tokens/jsonl.py", "for problem in reversed(found)}", "for problem in found}", "tests/unit/envs/test_jsonl.py -k repeated"),
    Mutant("data-repeats-of-another-answer", "envs/tokens/jsonl.py", "if known.answer != problem.answer:", "if False:", "tests/unit/envs/test_jsonl.py -k broken"),
    Mutant("micro-parts-overfull", MICRO, "start, stop + 1) <= most:", "start, stop) <= most:", IN_MICRO),
    Mutant("micro-parts-overlap", MICRO, "        start = stop\n", "        start += 1\n", IN_MICRO),
    Mutant("micro-pieces-too-long", MICRO, "(most - prompt) // max(longest, 1)", "most // max(longest, 1)", IN_MICRO),
    Mutant("micro-gradient-of-the-sum", MICRO, "leaf_P, grad_MT)", "leaf_P, torch.ones_like(grad_MT))", IN_MICRO),
    Mutant("micro-recomputes-for-nothing", MICRO, "if not grad_MT.any():", "if False:", IN_MICRO),
    Mutant("micro-out-of-memory-unheard", MICRO, "with ctx.refused(), torch.enable_grad():", "with torch.enable_grad():", IN_MICRO),
    Mutant("micro-first-guess-fits", MICRO, "            continue\n        return tokens", "            return tokens\n        return tokens", IN_MICRO),
    Mutant("jsonl-trains-on-held-out", JSONL, "else (0, self._kept or total)", "else (0, total)", IN_JSONL),
    Mutant("jsonl-unfinished-judged", JSONL, "if whole or self.judge_unfinished:", "if True:", IN_JSONL),
    Mutant("jsonl-failures-uncounted", JSONL, "self.failed.update(", "Counter().update(", IN_JSONL),
    Mutant("jsonl-digest-ignored", JSONL, "if digest and digest != (", "if False and digest != (", IN_JSONL),
    Mutant("jsonl-line-from-zero", JSONL, 'enumerate(text.split("\\n"), 1)', 'enumerate(text.split("\\n"))', IN_JSONL),
    Mutant("verifier-first-number", VERIFIERS, "found[-1].replace", "found[0].replace", IN_JSONL),
    Mutant("verifier-hangs", VERIFIERS, "left <= 0 or not select.select([descriptor], [], [], left)[0]", "not select.select([descriptor], [], [], 60)[0]", IN_JSONL),
    Mutant("verifier-not-restarted", VERIFIERS, "        if self._process is None:\n            self._start()\n", "", IN_JSONL),
    Mutant("chat-begin-token-twice", CHAT, "self.tokenizer(text, add_special_tokens=False).input_ids)\n        text", "self.tokenizer(text).input_ids)\n        text", IN_CHAT),
    Mutant("chat-pad-starts-prompt", CHAT, "if token is not None and token not in starts:", "if token is not None:", IN_CHAT),
    Mutant("chat-one-end-token", CHAT, "*([] if own is None else [own]), *ends]", "*([] if own is None else [own])]", IN_CHAT),
    Mutant("chat-stop-judged", CHAT, "(text[:cut], True)", "(text, True)", IN_CHAT),
    Mutant("chat-end-behind-prompt", CHAT, "and tokens[-1:] != self._plain(text)[-1:]:", "and False:", IN_CHAT),
    Mutant("sampler-stops-unseen", SAMPLER, "if task.stops:", "if False:", IN_CHAT),
    Mutant("sampler-one-end-token", SAMPLER, "over_M |= token_MT[:, -1] == end", "over_M = token_MT[:, -1] == end", IN_CHAT),
    Mutant("sampler-wrong-rows-leave", SAMPLER, "self.alive_M.nonzero()[:, 0]", "self.alive_M.logical_not().nonzero()[:, 0]", IN_SAMPLER),
    Mutant("sampler-cache-always-kept", SAMPLER, "again = self.order.recomputed and version != before", "again = False", IN_SAMPLER),
    Mutant("sampler-cache-never-kept", SAMPLER, "again = self.order.recomputed and version != before", "again = version != before", IN_SAMPLER),
    Mutant("sampler-law-of-another-row", SAMPLER, "law_RVB[r].T[writer.row_M]", "law_RVB[r].T.flip(0)[writer.row_M]", IN_SAMPLER),
    Mutant("sampler-old-weights-head", SAMPLER, "        if version != before:\n            self._use(version)\n", "", IN_SAMPLER),
    Mutant("lora-merge-forgets-delta", LORA, "weight.data + delta", "weight.data", IN_LORA),
    Mutant("lora-merge-of-the-start", LORA, "own[name].data = value.to(own[name].device, own[name].dtype)", "pass", IN_LORA),
    Mutant("lora-start-unseeded", LORA, "torch.manual_seed(rng", "(rng", IN_LORA),
    Mutant("lora-other-shapes-accepted", LORA, "if saved[name].shape != parameter.shape:", "if False:", IN_LORA),
    Mutant("lora-saved-without-prefix", LORA, 'return PREFIX + name', 'return name', IN_LORA),
    Mutant("lora-adapter-not-loaded", LORA, "parameter.data.copy_(saved[name])", "pass", IN_LORA),
    Mutant("lora-unknown-layer-accepted", LORA, "if target not in names:", "if False:", IN_LORA),
    Mutant("lora-trains-all", LORA, "model.requires_grad_(False)", "pass", IN_LORA),
    Mutant("lora-rounding-accepted", GENERATION, "    _refuse_rounded_adapters(run, made)\n", "", IN_LORA),
    Mutant("checkpoint-forgets-hand-over", POINT, "held.trainer.switch_recipes(state, past)", "pass", IN_POINT),
    Mutant("checkpoint-one-step-early", POINT, 'step = int(tree["step"])', 'step = int(tree["step"]) - 1', IN_POINT),
    Mutant("checkpoint-forgets-what-lives", POINT, 'reader.value(tree["live"], held.live)', "pass", IN_POINT),
    Mutant("checkpoint-digest-unread", POINT_FILES, "if not whole:", "if False:", IN_POINT),
    Mutant("checkpoint-other-code-accepted", POINT_FILES, 'if changed := difference(fingerprint(), tree["fingerprint"]):', "if changed := None:", IN_POINT),
    Mutant("checkpoint-stays", "testbed/execution/runner.py", "            forget(pack.id)\n", "", IN_POINT),
    Mutant("engine-stale-weights-unseen", ENGINES, "if other := [v for v in one.versions if v != version]:", "if other := []:", IN_ENGINES),
    Mutant("engine-prefix-cache-kept", ENGINES, "        self._llm.reset_prefix_cache()\n", "", IN_ENGINES),
    Mutant("engine-raw-log-probabilities", ENGINES, "processed_logprobs", "raw_logprobs", IN_ENGINES),
    Mutant("engine-another-token-s-logp", ENGINES, "step[token].logprob for token, step", "next(iter(step.values())).logprob if token != 10 else -0.1 for token, step", IN_ENGINES),
    Mutant("versions-read-narrow", "testbed/staleness/versions.py", "weights_RWP.to(self.device, self.dtype)", "weights_RWP.to(self.device)", NARROW),
    Mutant("versions-narrow-under-engine", GENERATION, "return None if engine_of(run).weights is not None else NARROW[name]", "return NARROW[name]", NARROW),
    Mutant("versions-gpu-only", "testbed/staleness/storage.py", 'if size > most and device.type != "cpu":', "if False:", NARROW),
    Mutant("ranks-share-overlaps", RANKS, "(self.rank + 1) // self.ranks)", "(self.rank + 1) // self.ranks + 1)", IN_RANKS),
    Mutant("ranks-own-gradient-alone", RANKS, "return ctx.ranks.total(grad_RP), None, None", "return grad_RP, None, None", IN_RANKS),
    Mutant("ranks-own-values-alone", RANKS, "return ranks.total(ctx.own.detach())", "return ctx.own.detach()", IN_RANKS),
    Mutant("ranks-versions-of-the-first", RANKS, "theta_RWP, version_RBT[:, b], prompt_RNQ", "theta_RWP, version_RBT[:, b] * 0, prompt_RNQ", IN_RANKS),
    Mutant("ranks-judge-everywhere", RANKS, "if self.rank == 0:", "if True:", IN_RANKS),
    Mutant("ranks-all-write-checkpoints", POINT, 'or os.environ.get("RANK", "0") != "0":', "or False:", IN_RANKS),
    Mutant("ranks-memory-of-one", "testbed/execution/memory.py", 'ranks_of(pack.cells) if first.device == "cpu" else 1', "1", IN_RANKS),
    Mutant("live-tokens-never-reset", LIVE, "self.tokens, self.began = 0, now", "self.began = now", IN_LIVE),
    Mutant("live-all-ranks-speak", LIVE, 'os.environ.get("RANK", "0") != "0"', "False", IN_LIVE),
    Mutant("live-toys-speak", LIVE, ' and runs[0].policy == "hf" and not shared else None', ' and not shared else None', IN_LIVE),
    Mutant("live-lines-swallowed", "testbed/execution/executors.py", "        self.feed.line(text)\n", "        pass\n", IN_LIVE),
    Mutant("sampler-weights-left-behind", SAMPLER, "        reader.model.unbind()\n", "        pass\n", IN_SAMPLER),
    Mutant("micro-tokens-here-unread", MICRO, "        return int(here)\n", "        pass\n", IN_MICRO),
    Mutant("alp-hooks-stay", CAUSAL, "                handle.remove()\n", "                pass\n", IN_ALP),
    Mutant("alp-one-stream-for-all-layers", "testbed/worlds/perturbed.py", "draw.normal(purpose, k, wide_RMH)", "draw.normal(purpose, 0, wide_RMH)", IN_ALP),
    Mutant("alp-size-of-the-first-layer", "testbed/worlds/perturbed.py", "log_sigma_RK[0, k].exp()", "log_sigma_RK[0, 0].exp()", IN_ALP),
    Mutant("entropy-of-unscaled-logits", CHUNKED, "entropy_N[s] = logits_entropy(logits_MV)", "entropy_N[s] = logits_entropy(logits_MV / scale)", IN_CHUNKED),
)  # fmt: skip
