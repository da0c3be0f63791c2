"""Bugs that the tests of their area did not notice when they were first planted."""

from mutants.mutant import Mutant

MUTANTS = (
    Mutant("words-false-is-true", "testbed/config/toml_file.py", 'return text.lower() == "true"', "return True", "tests/unit/config/test_config.py"),
    Mutant("hf-first-end-token-only", "testbed/policies/hf/sampler.py", "for end in task.end_tokens:", "for end in task.end_tokens[:1]:", "tests/unit/policies/test_hf_sampler.py"),
    Mutant("lora-scale-is-one", "testbed/policies/hf/lora.py", "lora.alpha or 2 * lora.rank", "lora.alpha or lora.rank", "tests/unit/policies/test_lora.py"),
    Mutant("replay-advantage-for-fresh-rows", "testbed/training/learner.py", "replayed_CB1 = (rollout.origin_RB == REPLAY)", "replayed_CB1 = (rollout.origin_RB != EXPERT)", "tests/unit/training/test_learner.py"),
    Mutant("bets-of-both-sides-go-up", "testbed/testing/e_process.py", '"both": [up, down]', '"both": [up, up]', "tests/unit/testing/test_testing_sequential.py"),
    Mutant("lost-replica-comes-back", "testbed/training/update.py", "alive_R = state.alive_R & update.finite_R", "alive_R = update.finite_R", "tests/unit/training/test_learner.py"),
    Mutant("end-of-passes-at-the-packs-last", "testbed/training/update.py", "if pass_index == learner.recipe.passes - 1:\n                    learner", "if pass_index == max(one.recipe.passes for one in self.learners) - 1:\n                    learner", "tests/unit/training/test_learner.py"),
    Mutant("history-holds-its-own-batch", "testbed/training/learner.py", "        found: dict[str, Tensor | None] = {}\n        for name", "        self._remember(rollout.reward_RB, group_CB)\n        found: dict[str, Tensor | None] = {}\n        for name", "tests/unit/training/test_learner.py"),
    Mutant("step-law-without-its-maximum", "testbed/policies/toy/step_kernels.py", "logit = load(law, v, b) - high\n", "logit = load(law, v, b)\n", "tests/unit/policies/test_toy_transformer.py"),
    Mutant("step-attention-without-its-maximum", "testbed/policies/toy/step_kernels.py", "exp2(load(scores, k, ZERO) - high)", "exp2(load(scores, k, ZERO))", "tests/unit/policies/test_toy_transformer.py"),
    Mutant("compiled-draw-below-the-boundary", "testbed/policies/toy/step_kernels.py", "U(passed <= threshold)", "U(passed < threshold)", "tests/unit/policies/test_toy_transformer.py"),
    Mutant("newest-waiting-weights-lost", "testbed/pipeline/kernel.py", "s.next_coming = version", "pass", "tests/unit/pipeline/test_pipeline.py"),
    Mutant("queue-drops-one-group-late", "testbed/pipeline/kernel.py", "p.drop_rule != _BLOCK and s.queue_size >= p.queue_groups", "p.drop_rule != _BLOCK and s.queue_size > p.queue_groups", "tests/unit/pipeline/test_pipeline.py"),
    Mutant("queue-blocks-one-group-late", "testbed/pipeline/kernel.py", "p.drop_rule == _BLOCK and s.queue_size >= p.queue_groups", "p.drop_rule == _BLOCK and s.queue_size > p.queue_groups", "tests/unit/pipeline/test_pipeline.py"),
    Mutant("busy-time-counts-warm-up", "testbed/pipeline/kernel.py", "s.measuring, s.began, s.busy, s.slot_seconds = 1, s.now, 0.0, 0.0", "s.measuring, s.began, s.slot_seconds = 1, s.now, 0.0", "tests/unit/pipeline/test_pipeline.py"),
    Mutant("mis-window-without-its-upper-end", "testbed/objectives/decoupled/mis.py", "level=level, low=low, high=high),\n        c=c", "level=level, low=low, high=math.inf),\n        c=c", "tests/unit/objectives/test_objectives_decoupled.py"),
    Mutant("mis-skyrl-window-without-its-upper-end", "testbed/objectives/decoupled/mis.py", 'level="token", low=low, high=high)', 'level="token", low=low, high=math.inf)', "tests/unit/objectives/test_objectives_decoupled.py"),
    Mutant("damaged-counts-failed-packs", "testbed/results/store.py", "- done - failed", "- done", "tests/unit/results/test_records.py"),
    Mutant("failures-elsewhere-tried-again", "testbed/execution/runner.py", "failed = self._store.failure(pack.id) != self._failed_before.get(pack.id)", "failed = False", "tests/unit/execution/test_resume.py"),
    Mutant("axis-labels-swapped", "paper_figs/plot.py", "each.set_xlabel((plot.x_label or plot.x)", "each.set_xlabel((plot.y_label or plot.y)", "tests/experiments/test_plot.py"),
    Mutant("real-greedy-is-unlikeliest", "testbed/policies/hf/sampler.py", "token_B = logits_BV.argmax(-1)", "token_B = logits_BV.argmin(-1)", "tests/unit/policies/test_hf_sampler.py"),
    Mutant("toy-greedy-is-unlikeliest", "testbed/policies/toy/sampler.py", "law_RVB.argmax(1)", "law_RVB.argmin(1)", "tests/unit/training/test_learner.py"),
    Mutant("tabular-greedy-is-unlikeliest", "testbed/worlds/tabular.py", "logits_RSA.argmax(-1)", "logits_RSA.argmin(-1)", "tests/unit/training/test_learner.py"),
    Mutant("arms-in-order-of-appearance", "testbed/training/loop.py", "key=lambda i: (runs[i].recipe, runs[i].recipe_args, i)", "key=lambda i: i", "tests/unit/training/test_train.py"),
    Mutant("arms-labeled-in-order-of-appearance", "analysis/sweeps/sweep_table.py", '.drop_duplicates().sort_values(list(names), na_position="first")', ".drop_duplicates()", "tests/unit/analysis/test_sweep_table.py"),
)  # fmt: skip
