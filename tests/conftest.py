import jax
import pytest


@pytest.fixture
def x64():
    """Float64 for one test; the library's default, and that of every other test, is float32."""
    with jax.enable_x64(True):
        yield
