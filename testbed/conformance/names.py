"""Names that stacks give to a loss's inputs and hyperparameters; arguments are bound by them."""

STACKS: dict[str, dict[str, str]] = {
    "testbed": {
        "logp": "logp", "logp_bt": "logp", "batch": "batch", "logp_mu": "mu", "logp_anchor": "anchor",
        "logp_ref": "ref", "adv": "adv", "mask": "mask", "reward": "reward", "group": "group",
    },
    "TRL": {
        "per_token_logps": "logp", "old_per_token_logps": "old", "sampling_per_token_logps": "mu",
        "ref_per_token_logps": "ref", "completion_mask": "mask", "advantages": "adv",
        "num_items_in_batch": "tokens", "old_logps": "old", "ref_logps": "ref", "logps": "logp",
    },
    "verl": {
        "log_prob": "logp", "old_log_prob": "old", "rollout_log_prob": "mu", "rollout_log_probs": "mu",
        "ref_log_prob": "ref", "response_mask": "mask", "token_level_rewards": "reward", "index": "group",
        "uid": "group", "old_log_probs": "old", "batch_num_tokens": "tokens",
        "global_batch_size": "sequences",
    },
    "OpenRLHF": {
        "log_probs": "logp", "action_mask": "mask", "rollout_log_probs": "mu", "ref_log_probs": "ref",
        "action_log_probs": "logp", "old_action_log_probs": "old",
    },
    "Liger": {"advantage": "adv", "attention_mask": "mask", "selected_logps": "logp"},
    "slime, miles": {
        "ppo_logprobs": "logp", "rollout_logprobs": "mu", "loss_mask": "mask", "loss_masks": "mask",
    },
    "AReaL": {
        "logprobs": "logp", "proximal_logprobs": "anchor", "proximal_logp": "anchor", "prox_logp": "anchor",
        "old_logprobs": "old", "behave_logprobs": "mu", "behav_logprobs": "mu", "behav_logp": "mu",
    },
    "NeMo-RL": {
        "curr_logprobs": "logp", "prev_logprobs": "old", "generation_logprobs": "mu",
        "reference_policy_logprobs": "ref", "token_mask": "mask", "global_valid_toks": "tokens",
        "global_valid_seqs": "sequences", "reference_logprobs": "ref",
    },
    "prime-rl": {"trainer_logprobs": "logp", "inference_logprobs": "mu", "teacher_logprobs": "ref"},
    "Tinker": {"target_logprobs": "logp", "sampling_logprobs": "mu", "weights": "mask"},
    "open-instruct": {"new_logprobs": "logp", "vllm_logprobs": "mu", "ref_logprobs": "ref"},
    "ROLL": {"ref_log_probs": "ref", "infer_log_probs": "mu", "train_log_probs": "logp"},
    "packed rows": {
        "segment_ids": "segments", "sequence_ids": "segments", "seq_ids": "segments", "doc_ids": "segments",
        "position_ids": "positions", "cu_seqlens": "offsets", "cu_seq_lens": "offsets",
    },
    "logits": {"logits": "logits", "labels": "labels", "input_ids": "labels", "completion_ids": "labels",
               "targets": "labels", "tokens": "labels", "token_ids": "labels"},
    "others": {
        "logp_new": "logp", "new_logp": "logp", "lp": "logp", "log_pi": "logp", "logp_pi": "logp",
        "policy_logprobs": "logp", "logprob": "logp", "cur_logp": "logp", "new_log_probs": "logp",
        "logp_old": "old", "old_logp": "old", "old": "old", "old_logprob": "old", "lp_old": "old",
        "anchor": "anchor", "mu": "mu", "log_mu": "mu", "behavior_logp": "mu", "behavior_logprobs": "mu",
        "sampler_logprobs": "mu", "ref": "ref", "ref_logp": "ref", "ref_logprob": "ref", "a": "adv",
        "advantages_bt": "adv", "rewards": "reward", "scores": "reward",
        "advantages_per_response": "adv", "sequence_advantages": "adv", "groups": "group",
        "group_ids": "group", "prompt_ids": "group", "masks": "mask", "num_tokens": "tokens",
        "total_tokens": "tokens", "global_tokens": "tokens", "num_sequences": "sequences",
        "total_sequences": "sequences", "global_sequences": "sequences",
    },
}  # fmt: skip
"""Argument name in a stack -> its role. "old" is the anchor if mu is given too, else both."""

PER_RESPONSE = ("advantages_per_response", "sequence_advantages")
"""Names that imply one advantage per response; for others both shapes are tried."""

ROLES = {
    "logp": "log-probabilities of the policy that is trained",
    "logits": "logits; log-probabilities are made of them and `labels`",
    "labels": "token ids that belong to `logits`",
    "old": "log-probabilities before the update",
    "anchor": "the trainer's log-probabilities before the update",
    "mu": "log-probabilities of the sampler",
    "ref": "log-probabilities of the reference",
    "adv": "advantages",
    "mask": "1 at tokens that the policy chose",
    "reward": "rewards, one per response",
    "group": "ids of prompts, one per response",
    "segments": "id of the response that a packed token belongs to",
    "positions": "positions in a packed row, 0 where a response begins",
    "offsets": "where responses begin in a packed row, and its length",
    "tokens": "tokens of the whole update, the divisor",
    "sequences": "responses of the whole update, the divisor",
    "batch": "testbed.data.batch.Batch",
}

KNOWN: dict[str, str] = {name: role for table in STACKS.values() for name, role in table.items()}

HYPER: dict[str, tuple[str, ...]] = {
    "eps_low": ("epsilon_low", "eps_low", "clip_low", "clip_ratio_low", "eps_clip_low", "clip_eps_low",
                "cliprange_low", "clip_lower", "ratio_clip_min"),
    "eps_high": ("epsilon_high", "eps_high", "clip_high", "clip_ratio_high", "eps_clip_high", "clip_eps_high",
                 "cliprange_high", "clip_upper", "ratio_clip_max"),
    "both": ("epsilon", "eps", "clip", "clip_eps", "eps_clip", "clip_ratio", "cliprange", "clip_range"),
    "c": ("c", "clip_ratio_c", "dual_clip", "ratio_clip_c", "c_clip"),
    "delta": ("delta",),
    "cap": ("cap", "tis_cap", "tis_imp_ratio_cap", "clip_rho", "rho_max", "is_cap"),
    "tau": ("tau", "temperature"),
    "tau_pos": ("tau_pos", "temperature_pos", "sapo_temperature_pos"),
    "tau_neg": ("tau_neg", "temperature_neg", "sapo_temperature_neg"),
    "estimator": ("estimator", "kl_estimator", "kl_type"),
    "beta": ("beta",),
}  # fmt: skip
"""Hyperparameter here -> its names in signatures. "both" sets eps_low and eps_high."""


def role_of(argument: str) -> str:
    """Return the role of an argument by its name, "" for an unknown name.

    >>> role_of("old_per_token_logps"), role_of("advantages"), role_of("widget")
    ('old', 'adv', '')
    """
    name = argument.lower()
    return KNOWN.get(name) or KNOWN.get(name.removesuffix("_bt").removesuffix("_b"), "")


def told(defaults: dict[str, object]) -> dict[str, object]:
    """Return the hyperparameters in a signature's defaults, under our names.

    >>> told({"clip_eps": 0.1, "epsilon_high": 0.28})
    {'eps_low': 0.1, 'eps_high': 0.28}
    """
    found: dict[str, object] = {}
    for name, names in HYPER.items():
        value = next((v for k, v in defaults.items() if k.lower() in names and v is not None), None)
        if value is None:
            continue
        if name == "both":
            found = {"eps_low": value, "eps_high": value} | found
        else:
            found[name] = value
    return found
