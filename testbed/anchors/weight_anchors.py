"""Anchors with other weights: those of some steps ago, or a moving average of all earlier ones."""

import torch
from torch import Tensor

from testbed.anchors import Anchor, AnchorInputs, anchor
from testbed.errors import UserError
from testbed.recipes.composition import Recipe
from testbed.staleness.versions import VersionBuffer


class Average(Anchor):
    """The moving average of the weights with a decay, divided by its total weight."""

    versions = 1

    def __init__(self, decay: float) -> None:
        self.decay = decay

    def start(self, theta_CP: Tensor) -> None:
        """Begin with the starting weights, counted once."""
        self.total_CP, self.weight = theta_CP.detach(), 1.0

    def observe_weights(self, theta_CP: Tensor) -> None:
        """total <- decay total + theta; its weight is updated likewise."""
        self.total_CP = self.decay * self.total_CP + theta_CP.detach()
        self.weight = self.decay * self.weight + 1.0

    def logp(self, inputs: AnchorInputs) -> Tensor:
        """Return the average's log-probabilities; it includes the weights at the start of the step."""
        return inputs.logp_of(self.total_CP / self.weight)


class Version(Anchor):
    """The trainer's weights of `age` steps ago; before step `age`, those at the start."""

    def __init__(self, age: int) -> None:
        self.age, self.versions = age, age + 1

    def start(self, theta_CP: Tensor) -> None:
        """Allocate the newest age + 1 versions of every replica."""
        self.buffer = VersionBuffer(theta_CP, [self.versions] * len(theta_CP))

    def logp(self, inputs: AnchorInputs) -> Tensor:
        """Store the weights at the start of the step; return the log-probabilities of older ones."""
        # A step with an empty batch never calls this and changes no weights: the next step has the same ones.
        for version in range(self.buffer.newest + 1, inputs.step + 1):
            self.buffer.write(inputs.theta_CP, version)
        version_C1 = torch.full((len(inputs.theta_CP), 1), max(inputs.step - self.age, 0))
        return inputs.logp_of(self.buffer.read(version_C1.to(inputs.theta_CP.device))[:, 0])


@anchor("ewma", source="Hilton, Cobbe & Schulman (2021), arXiv:2110.00641; openai/ppo-ewma 625dac7")
def ewma(recipe: Recipe, *, decay: float = 0.889) -> Anchor:
    """Weights sum_i decay^(t-i) theta_i / sum_i decay^(t-i): decay / (1 - decay) steps old on average.

    One term per optimizer step, for any number of passes. testbed.anchors.rescale keeps its age in samples
    when the batch shrinks.
    """
    del recipe
    if not 0 <= decay < 1:
        raise UserError(f"decay is {decay}, expected at least 0 (the present weights) and below 1.")
    return Average(decay)


@anchor(
    "version", source="Missing Old Logits (2026), arXiv:2605.12070: a model kept for old log-probabilities"
)
def version(recipe: Recipe, *, age: int = 1, kept: int = 0) -> Anchor:
    """Weights of exactly `age` steps ago, in the trainer's engine, for all tokens.

    kept: limit on the stored snapshots, the current one included; 0 stores as many as the age needs.
    """
    del recipe
    if age < 0 or kept < 0:
        raise UserError(f"age is {age} and kept {kept}; expected steps back and snapshots, at least 0.")
    if 0 < kept < age + 1:
        raise UserError(
            f"an anchor of age {age} needs the newest {age + 1} snapshots of the weights, but kept is "
            f"{kept}; lower anchor_args.age to {kept - 1} or raise anchor_args.kept to {age + 1}."
        )
    return Version(age)
