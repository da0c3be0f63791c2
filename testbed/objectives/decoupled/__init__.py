"""Objectives of three policies: d = anchor/mu corrects for the behavior policy, u = pi/anchor is clipped.

Every loss here is -h min(u A, clip(u) A) with a weight h(d) that has no gradient, and differs in h alone.
A token with h = 0 is dropped: its loss is 0, and an aggregation over all tokens still counts it. Stacks
that take it out of the mask as well divide by fewer tokens; `inspection.kept_mask` is that mask.

Bypass modes need no objective of their own, since Batch.logp_anchor_BT defaults to mu: with it `ppo_clip`
is verl's bypass "ppo_clip" (one clip for engine mismatch and staleness together), and
`importance_reinforce` with a level and a cap is its bypass "reinforce".
"""
