"""Anchors: the weights that stand for the proximal policy, around which objectives clip.

`anchor` registers makers: maker(recipe, *, …) -> Anchor. `Run.anchor` names one; it takes the place of the
anchor of any recipe whose loss reads one. With u = pi/anchor and d = anchor/mu the ratio pi/mu is d u, so an
anchor decides how staleness and engine mismatch are shared between the weight and the clip: docs/anchors.md.
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

    theta_CP: weights at the start of the step, whose version is `step`.
    logp_CBT: log-probabilities of the weights of this pass, without gradient.
    rollout: the arm's batch, with versions and behavior log-probabilities as the objective will read them.
    logp_of: weights [C, P] -> their log-probabilities of the batch, without gradient.
    """

    theta_CP: Tensor
    step: int
    rollout: Rollout
    logp_CBT: Tensor
    logp_of: Callable[[Tensor], Tensor]


class Anchor(ABC):
    """The proximal policy of an arm, and what it remembers from step to step.

    every_pass: it reads the weights of each pass, so that it is asked again at every pass over a batch.
    versions: weights of other steps that it keeps per replica.
    """

    every_pass: ClassVar[bool] = False
    versions: int = 0

    @abstractmethod
    def logp(self, inputs: AnchorInputs) -> Tensor:
        """Return log-probabilities of the batch's tokens [C, B, T], without gradient."""

    def start(self, theta_CP: Tensor) -> None:  # noqa: B027 - most anchors remember nothing
        """Take note of the weights before the first step."""

    def observe_weights(self, theta_CP: Tensor) -> None:  # noqa: B027
        """Take note of the weights after a step."""


def build_anchor(recipe: Recipe, name: str = "recipe", arguments: Arguments = ()) -> Anchor:
    """Return the anchor of an arm before its first step.

    Raises UserError for an unknown name, argument or impossible value, and for an anchor other than the
    recipe's own where no loss of the recipe reads one.
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
    """Return whether a loss of the recipe, or of those that take over from it, reads the anchor."""
    later = recipe.hand_over
    return "anchor" in recipe.reads or (later is not None and reads_anchor(later.recipe))
