import os

import jax
import pytest

# Nearly all of the suite's time is XLA's compiler. Set the variable to 0 for the default level.
if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def x64():
    """Float64 for one test; the library's default, and that of every other test, is float32."""
    with jax.enable_x64(True):
        yield
