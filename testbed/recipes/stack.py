"""A public stack with its configuration, as a recipe."""

from testbed.recipes import recipe
from testbed.recipes.composition import Recipe
from testbed.recipes.stack_composition import compose


@recipe("stack", source="the stack's own, docs/stacks/ (snapshots of 2026)")
def stack(*, of: str = "verl", config: str = "") -> Recipe:
    """Train as a public stack does: its name in `of`, its settings in `config`, e.g. "loss_mode=gspo".

    `testbed objectives from` translates these into our names and prints an equivalent command. If no recipe
    has the stack's anchor, that command sets `anchor=`.
    """
    return compose(of, config.split()).recipe()
