import jax
import jax.numpy as jnp

from dgp_ppl.core._dependence import dependence


def test_results_depend_on_what_they_are_computed_from():
    """Also through a compiled function; not on what is only overwritten or multiplied away."""
    both = jax.jit(lambda a, b: (2 * a, a + b))

    def function(a, b, c):
        first, second = both(a, b)
        return {"first": first, "last": jnp.ones_like(c), "second": second}

    found = dependence(function, *map(jnp.asarray, (1.0, 2.0, 3.0)))
    assert found == [[True, False, False], [False, False, False], [True, True, False]]
