"""The implicit guide, its networks, objective, optimiser and diagnostic."""

from __future__ import annotations

from dgp_ppl.inference.guides.implicit._elbo import AdversarialELBO
from dgp_ppl.inference.guides.implicit._guide import Implicit
from dgp_ppl.inference.guides.implicit._networks import DiscriminatorNet, GeneratorNet
from dgp_ppl.inference.guides.implicit._optimizer import adversarial_optimizer

__all__ = [
    "AdversarialELBO",
    "DiscriminatorNet",
    "GeneratorNet",
    "Implicit",
    "adversarial_optimizer",
]
