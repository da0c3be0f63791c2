"""Anchors: the weights of the proximal policy, around which objectives clip.

`anchor` registers makers: maker(recipe, *, …) -> Anchor. `Run.anchor` names one; it replaces the anchor of
any recipe with a loss that reads one. With u = pi/anchor and d = anchor/mu the ratio pi/mu is d u, so an
anchor splits staleness and engine mismatch between the weight and the clip: docs/anchors.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.recipes.composition import Arguments, Recipe
from testbed.registry import Registry

anchor = Registry("anchor", package="testbed.anchors")


@dataclass(frozen=True)
class AnchorInputs:
    """Inputs of an anchor at one pass over a batch, for the C replicas of an arm.

    theta_CP: weights at the start of step `step`, with that version.
    logp_CBT: log-probabilities of the weights of this pass, without gradient.
    rollout: the arm's batch, with versions and the behavior log-probabilities that the objective reads.
    logp_of: weights [C, P] -> their log-probabilities of the batch, without gradient.
    """

    theta_CP: Tensor
    step: int
    rollout: Rollout
    logp_CBT: Tensor
    logp_of: Callable[[Tensor], Tensor]


class Anchor(ABC):
    """The proximal policy of an arm, with its state between steps.

    every_pass: it reads the weights of each pass, so it is called at every pass over a batch.
    versions: number of other steps' weights that it keeps per replica.
    """

    every_pass: ClassVar[bool] = False
    versions: int = 0

    @abstractmethod
    def logp(self, inputs: AnchorInputs) -> Tensor:
        """Return log-probabilities of the batch's tokens [C, B, T], without gradient."""

    def start(self, theta_CP: Tensor) -> None:  # noqa: B027 - most anchors remember nothing
        """Record the weights before the first step."""

    def observe_weights(self, theta_CP: Tensor) -> None:  # noqa: B027
        """Record the weights after a step."""


def build_anchor(recipe: Recipe, name: str = "recipe", arguments: Arguments = ()) -> Anchor:
    """Return the anchor of an arm before its first step.

    Raises UserError for an unknown name, argument or impossible value, and for another anchor than the
    recipe's if no loss of the recipe reads one.
    """
    made: Anchor = anchor[name].bind(**dict(arguments))(recipe)
    if name != "recipe" and not reads_anchor(recipe):
        raise UserError(
            f"anchor is '{name}', but a recipe with objective '{recipe.objective}' reads no anchor, so "
            "this setting would change nothing. Leave anchor at 'recipe', or choose a recipe that reads "
            "an anchor, e.g. decoupled."
        )
    return made


def reads_anchor(recipe: Recipe) -> bool:
    """Return True if a loss of the recipe, or of a recipe that later replaces it, reads the anchor."""
    later = recipe.hand_over
    return "anchor" in recipe.reads or (later is not None and reads_anchor(later.recipe))
