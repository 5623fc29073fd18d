"""Flags, compilation cache and fixtures of the test suite."""

import contextlib
import ctypes
import gc
import os
import shutil
import time
from importlib.metadata import version
from pathlib import Path

# XLA reads its flags once, when it compiles the first program. Both flags make compilation cheaper.
# The first one also keeps each program in one piece of memory.
_FLAGS = ["--xla_cpu_parallel_codegen_split_count=1"]
if version("jaxlib").startswith("0.10."):  # later versions have no other code generator
    _FLAGS.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([*_FLAGS, os.environ.get("XLA_FLAGS", "")]).strip()
os.environ.setdefault("OMP_NUM_THREADS", "1")  # scikit-learn's threads wait for other workers'

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402

# Compilation takes most of the suite's time. Leave out XLA's costly passes, except in tests of
# rounding (`optimised`). The variable says so to programs that tests start.
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
jax.config.update("jax_disable_most_optimizations", True)

# Tracing creates many objects, so Python's default thresholds collect too often.
gc.set_threshold(100_000, 20, 50)

_CACHE = Path(__file__).parent.parent / ".cache" / f"jax-{version('jax')}"
_CACHE_BYTES = 2**30
_MAPPINGS, _BYTES = 40_000, 3 * 2**30
_SECONDS_BETWEEN_CHECKS = 5.0
_LONGEST = {"test_docs.py", "test_examples.py", "test_tutorial.py"}
_SAME_RANKS = {"core", "kernels", "linalg"}
_TYPED = _SAME_RANKS | {"criticism", "inferencedata", "likelihoods", "models", "prediction"}
_checked = 0.0

jaxtyping.config.update("jaxtyping_disable", True)  # but see `_strict`


def pytest_configure(config):
    """Keep compiled programs on disk for other workers, for subprocesses and for later runs."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
            files = _CACHE.glob("*") if _CACHE.is_dir() else ()
            if sum(f.stat().st_size for f in files) > _CACHE_BYTES:
                shutil.rmtree(_CACHE, ignore_errors=True)
            os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_CACHE)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.3")
    # Programs started by tests import from tests and examples too.
    tests = Path(__file__).parent
    paths = (str(tests), str(tests.parent / "examples"), os.environ.get("PYTHONPATH"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    seconds = float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)


def pytest_collection_modifyitems(items):
    """Begin with the longest tests, so that no worker ends long after the other."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


def pytest_collection_finish(session):
    """Exclude objects that live as long as the run from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _bounded_process():
    """Drop compiled programs before the process has too many memory mappings or too much memory.

    Each compiled program takes several mappings. A process that needs more than 65,530 of them dies
    without a message. The memory of two workers would fill a small machine.
    """
    global _checked
    yield
    process = Path("/proc/self")
    if time.process_time() - _checked > _SECONDS_BETWEEN_CHECKS and process.exists():
        many = (process / "maps").read_bytes().count(b"\n") > _MAPPINGS
        if many or _memory(process) > _BYTES:
            jax.clear_caches()
            gc.collect()
            with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
                ctypes.CDLL("libc.so.6").malloc_trim(0)  # return what compilations freed
        _checked = time.process_time()  # the check itself takes up to 20 ms


def _memory(process):
    """Return the bytes of memory that a process uses."""
    return int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def optimised():
    """Compile with all optimisations; pass `OPTIONS` of test_robust.py to `jax.jit` too.

    JAX does not tell programs of the two kinds apart, so none outlives the test.
    """
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    jax.clear_caches()


@pytest.fixture
def x64():
    """Use float64 in one test; the default of the library and of the tests is float32."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def _strict(request):
    """Check shapes and types in signatures, and let JAX promote no ranks, in some folders' tests.

    The marker `wrong_types` is for tests of error messages: beartype would raise first.
    """
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    checked = folder in _TYPED and not request.node.get_closest_marker("wrong_types")
    jaxtyping.config.update("jaxtyping_disable", not checked)
    with jax.numpy_rank_promotion("raise" if folder in _SAME_RANKS else "allow"):
        yield
    jaxtyping.config.update("jaxtyping_disable", True)
