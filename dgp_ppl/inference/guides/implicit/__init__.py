"""The implicit guide, its networks, game and objective."""

from dgp_ppl.inference.guides.implicit._game import (
    AdversarialELBO,
    adversarial_optimizer,
    discriminator_gap,
)
from dgp_ppl.inference.guides.implicit._guide import DiscriminatorNet, GeneratorNet, Implicit

__all__ = [
    "AdversarialELBO",
    "DiscriminatorNet",
    "GeneratorNet",
    "Implicit",
    "adversarial_optimizer",
    "discriminator_gap",
]
