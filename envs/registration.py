"""Gymnasium ids `testbed/<Name>-v0`: importing this module registers them.

    gymnasium.make("envs.registration:testbed/Chain-v0", length=8)

A version increases when a world's numbers change. The world "tree" is a table over a token task; it uses the
task's id.
"""

import gymnasium

from envs.catalog import kind, worlds

VERSION = 0
_ENTRY_POINTS = {
    "finite-mdp": ("envs.mdp_gym_env:FiniteMDPEnv", "world"),
    "token-task": ("envs.tokens.token_gym_env:TokenEnv", "task"),
}


def gym_id(name: str) -> str:
    """`testbed/GridWorld-v0` of the world "grid-world"."""
    return f"testbed/{''.join(part.capitalize() for part in name.split('-'))}-v{VERSION}"


def register_all() -> tuple[str, ...]:
    """Register the ids of all worlds with gymnasium, unless done before, and return them."""
    ids = []
    for name in worlds():
        if kind(name) not in _ENTRY_POINTS:
            continue
        entry_point, argument = _ENTRY_POINTS[kind(name)]
        ids.append(gym_id(name))
        if ids[-1] not in gymnasium.registry:
            gymnasium.register(id=ids[-1], entry_point=entry_point, kwargs={argument: name})
    return tuple(ids)


register_all()
