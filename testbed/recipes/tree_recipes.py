"""Recipes for groups of responses that continue one another."""

from testbed.recipes import recipe
from testbed.recipes.composition import Recipe


@recipe("tree_opo", source="Huang et al. (2025), Tree-OPO, arXiv:2509.09284; from secondary notes")
def tree_opo() -> Recipe:
    """GRPO with rewards projected onto the order of staged prefixes; the run's prefixes must be staged."""
    return Recipe("tree_opo", "ppo_clip", "sequence_mean")
