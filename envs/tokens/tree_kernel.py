"""The compiled walk down a token tree: given the uniforms, an episode is arithmetic."""

from numba import njit, prange

from envs.arrays import Bools, Floats, Ints


@njit(cache=True, parallel=True)
def walk(
    pi_RWSA: Floats,
    version_RBT: Ints,
    start_RN: Ints,
    uniform_RBT: Floats,
    end_token: int,
    state_RBT: Ints,
    action_RBT: Ints,
    mask_RBT: Bools,
    given_RBT: Ints,
) -> None:
    """Fill state, action and mask, which must be zeros; `end_token` -1 means none.

    Action = first one with cumulative mass above the uniform, the last one with mass if rounding leaves none;
    or the given one, where given_RBT is not negative.
    """
    replicas, sequences, horizon = uniform_RBT.shape
    group, actions = sequences // start_RN.shape[1], pi_RWSA.shape[3]
    branches = actions if end_token < 0 else actions - 1
    for i in prange(replicas * sequences):
        r, b = i // sequences, i % sequences
        root = start_RN[r, b // group]
        node = 0
        for t in range(horizon):
            version, chosen, cumulative = version_RBT[r, b, t], 0, 0.0
            for a in range(actions):
                mass = pi_RWSA[r, version, root + node, a]
                if mass > 0.0:
                    chosen = a
                    cumulative += mass
                    if uniform_RBT[r, b, t] < cumulative:
                        break
            if given_RBT[r, b, t] >= 0:
                chosen = given_RBT[r, b, t]
            state_RBT[r, b, t], action_RBT[r, b, t], mask_RBT[r, b, t] = root + node, chosen, True
            if chosen == end_token:
                break
            # Branches are numbered over the continuing tokens, so those above the end token move down by one.
            node = node * branches + 1 + (chosen - 1 if 0 <= end_token < chosen else chosen)
