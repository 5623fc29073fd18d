import jax
import pytest

# Most of the suite's time is XLA's: its costlier passes are left out, but for the tests that are
# about rounding (`optimised`). Examples' smoke runs do the same by their environment.
jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def optimised():
    """Compiled as users' programs are."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def x64():
    """Float64 for one test; the library's default, and that of every other test, is float32."""
    with jax.enable_x64(True):
        yield
