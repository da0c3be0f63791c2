"""Token veto: one token that is almost impossible under the anchor drops its sequence."""

from testbed.objectives.decoupled.correction import decoupled, no_vanished_token


@decoupled(
    "token_veto",
    source="Liu et al. (2025), yingru.notion.site, 'When Speed Kills Stability'; "
    "volcengine/verl b178a3cd 2026-01-29",
    keep=no_vanished_token,
)
def token_veto() -> None:
    """L = -1[all d_t >= floor in the sequence] min(u A, clip(u, 1 - eps_low, 1 + eps_high) A).

    d = anchor/mu, u = pi/anchor. Rejection only, without a weight. floor = 1e-4 as in older verl, which calls
    such a token catastrophic; the note by Liu et al. could not be read.
    """
