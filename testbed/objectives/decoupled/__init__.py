"""Objectives of three policies: d = anchor/mu corrects for the behavior policy, u = pi/anchor is clipped.

Every loss here is -h min(u A, clip(u) A) with a detached weight h(d); only h differs. A token with h = 0 is
dropped: its loss is 0, and an aggregation over all tokens still counts it. Stacks that also remove it from
the mask divide by fewer tokens; `inspection.kept_mask` gives that mask.

Bypass modes need no separate objective, because Batch.logp_anchor_BT defaults to mu: with this default
`ppo_clip` is verl's bypass "ppo_clip" (one clip for engine mismatch and staleness together), and
`importance_reinforce` with a level and a cap is its bypass "reinforce".
"""
