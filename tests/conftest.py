import gc
import os
import shutil
import tempfile
from pathlib import Path

import jax
import pytest

# Most of the suite's time is XLA's: its costlier passes are left out, but for the tests that are
# about rounding (`optimised`). Examples' smoke runs do the same by their environment.
jax.config.update("jax_disable_most_optimizations", True)

_MAPPINGS = 20_000


def pytest_configure(config):
    """What one test compiled, the others of this run take from disk: workers, and programs run."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            folder = tempfile.mkdtemp(prefix="dgp_ppl-compiled-")
            config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
            os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
    # Programs that tests start import tests/support too.
    paths = (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture(autouse=True)
def _few_mappings():
    """Forget compiled programs before the kernel refuses to map more memory.

    Every program that XLA compiles on a CPU is some ten mappings, Linux allows a process 65,530,
    and a worker that asks for more dies without a word.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > _MAPPINGS:
        jax.clear_caches()
        gc.collect()


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
