"""Objectives: pure functions from log-probabilities to per-token losses, one file each, by family.

`objective` registers them with their citation and promises, which contract tests check:

ratio:       level of the importance ratio: token (default), none, prefix, min_prefix, sequence, geometric,
             turn, power_mean.
reads:       what the loss depends on besides pi and the mask: mu, anchor, ref, adv, reward, group,
             turn, origin.
scope:       the tokens that a token's weight depends on: the "token" itself (default), its "sequence", its
             "group", or the whole "batch" (then `statistic` names the dependence).
on_policy:   w / A when pi = mu = anchor: a number (default 1), "1/T" when a sequence's weight is spread over
             its tokens, None when w is not a fixed multiple of the advantage.
max_weight:  bound on |w / A|: a number or an expression in the hyperparameters.
sign:        True (default): w never has the sign of -A. False: it may.
detached:    the weight is detached, so the loss is not an antiderivative of it.
penalty:     the loss has a gradient even where the advantage is 0.
statistic:   the BatchStatistic of an objective of scope "batch".
keep:        function(logp_BT, batch, **hyper) -> bool [..., B, T] of objectives that drop tokens.
dual:        the DualUpdate of objectives with a hyperparameter that training moves after the last pass.

`name@source` is a variant: the loss that a public stack computes under the same name.
"""

from testbed.registry import Entry, Registry
from testbed.user_files import in_a_file


class Objectives(Registry):
    """The registry of objectives, with their variants and functions in files outside the package."""

    def __getitem__(self, name: str) -> Entry:
        if in_a_file(name):
            from testbed.objectives.outside import outside_objective  # torch is not needed to list objectives

            return outside_objective(name)
        return super().__getitem__(name)


objective = Objectives("objective", "testbed.objectives", ratio="token", scope="token", on_policy=1)
