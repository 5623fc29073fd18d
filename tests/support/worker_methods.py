"""Methods of `compare` that workers import: one that works, and ones that do not."""

import os
import signal
from pathlib import Path

from dgp_ppl.comparison import METHODS, register

FLAG = "DGP_PPL_TEST_FLAG"  # names the file that says that a worker has died


@register("dies_once", regression_only=True)
def dies_once(task):
    """Fit a linear model; the first worker that tries is killed."""
    flag = Path(os.environ[FLAG])
    if not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return METHODS["linear"](task)


@register("local_model", regression_only=True)
def local_model(task):
    """Fit a linear model, and return one that cannot be pickled."""
    fitted = METHODS["linear"](task)
    model = fitted.model
    object.__setattr__(fitted, "model", lambda *args, **kwargs: model(*args, **kwargs))
    return fitted


def threads_of_libraries(_):
    """Return the threads of BLAS libraries in this process, and the number that XLA is told."""
    import scipy.linalg  # noqa: F401 - loads its BLAS
    from threadpoolctl import threadpool_info

    return [found["num_threads"] for found in threadpool_info()], os.environ["NPROC"]
