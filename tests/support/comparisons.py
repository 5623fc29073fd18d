"""The smallest settings of a comparison, and one comparison that many tests look at."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

import dgp_ppl
from dgp_ppl.comparison._metrics import METRICS

TINY = {"steps": 4, "inducing": 4, "samples": 4, "progress": False}


@functools.cache
def compared():
    """Return a comparison of sgpr and dsvi on two splits of "step", and its folder.

    Tests look at the folder and at the comparison; none changes them.
    """
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    out = folder / "deep" / "er"
    return dgp_ppl.compare("step", ["sgpr", "dsvi"], splits=2, seed=3, out=out, **TINY), out


def no_fit(job):
    """Stand in for `run_method`: a row without metrics, and no run."""
    split, row = job.split, dict.fromkeys(METRICS[job.split.data.task])
    return {"split": split.index, "method": job.method, **row}, None
