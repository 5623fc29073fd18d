import os

import jax
import pytest

# Nearly all of the suite's time is XLA's compiler. Both settings below make it faster, and change
# results by rounding only; set the variables yourself to test with others.
if "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
    jax.config.update("jax_disable_most_optimizations", True)
if "XLA_FLAGS" not in os.environ and jax.__version__.startswith("0.10."):
    # Unknown to later versions of XLA, which stop the process for it. Read when JAX first computes.
    os.environ["XLA_FLAGS"] = "--xla_cpu_use_fusion_emitters=false"


@pytest.fixture
def x64():
    """Float64 for one test; the library's default, and that of every other test, is float32."""
    with jax.enable_x64(True):
        yield
