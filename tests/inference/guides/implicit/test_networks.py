"""The networks of an implicit posterior."""

import equinox as eqx
import jax
from support.helpers import (
    KEY,
)

from dgp_ppl.inference.guides.implicit._networks import DiscriminatorNet, GeneratorNet


def test_the_number_of_params_is_that_of_mean_field_and_little_more():
    """At widths 30, 30, 10 and M = 100, where a dense map of all values would have 10^8 params."""
    layers = {f"l{l}.v": (100, P) for l, P in ((1, 30), (2, 30), (3, 10))}
    generator = eqx.filter_eval_shape(lambda k: GeneratorNet(8, key=k), KEY)
    count = lambda tree: sum(a.size for a in jax.tree.leaves(tree) if hasattr(a, "size"))  # noqa: E731
    assert count(generator) < 10_000
    for shapes, most in (({"shared": (8, 1)}, 10_000), (layers, 250_000)):
        make = lambda key, shapes=shapes: DiscriminatorNet(shapes, key=key)  # noqa: E731
        assert count(eqx.filter_eval_shape(make, KEY)) < most
