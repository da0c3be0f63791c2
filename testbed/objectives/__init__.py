"""Objectives: pure functions from log-probabilities to per-token losses, one file each, by family.

`objective` registers them with their citation and promises, which contract tests check:

ratio:       level of the importance ratio: none, token, prefix, min_prefix, sequence, geometric, turn,
             power_mean.
reads:       what the loss depends on besides pi and the mask: mu, anchor, ref, adv, reward, group,
             turn, origin.
scope:       whose log-probabilities a token's weight depends on: its own ("token"), those of its
             "sequence", of its "group", or of the whole "batch" (then `statistic` says through what).
on_policy:   w / A when pi = mu = anchor: a number, "1/T" when a sequence's weight is spread over its
             tokens, None when no multiple of the advantage is promised.
max_weight:  bound on |w / A|: a number or an expression in the hyperparameters.
sign:        True (default): w never has the sign of -A. False: it may.
detached:    the weight is a constant for autograd, so that the loss is not an antiderivative of it.
penalty:     the loss has a gradient where the advantage is 0.
statistic:   the BatchStatistic of an objective of scope "batch".
keep:        function(logp_BT, batch, **hyper) -> bool [..., B, T] of an objective that drops tokens.
dual:        the DualUpdate of an objective with a hyperparameter that training moves after the last pass.

`name@source` is a variant: what a public stack computes under the same name.
"""

from testbed.registry import Entry, Registry
from testbed.user_files import in_a_file


class Objectives(Registry):
    """The registry of objectives: also knows variants, and functions in files outside the package."""

    def __getitem__(self, name: str) -> Entry:
        if in_a_file(name):
            from testbed.objectives.outside import outside_objective  # torch is not needed to list objectives

            return outside_objective(name)
        return super().__getitem__(name)


objective = Objectives("objective", package="testbed.objectives")
