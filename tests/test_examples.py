"""Every example runs and is short."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(*args, cwd):
    environment = {k: v for k, v in os.environ.items() if k != "DGP_PPL_DATA"}
    done = subprocess.run(
        [sys.executable, *map(str, args)], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_wrapper_has_the_interface_of_scoring_bench(monkeypatch):
    """`from_multi_quantile` takes quantiles [N, Q], their levels, and the range of the targets."""
    import scoring_bench

    kinds = SimpleNamespace(from_multi_quantile=lambda *args, **kwargs: (args, kwargs))
    module = SimpleNamespace(DistributionPrediction=kinds)
    monkeypatch.setitem(sys.modules, "scoringbench.univariate.wrappers.base", module)
    x = np.random.default_rng(0).normal(size=(20, 2))
    y = np.where(np.arange(20) == 3, np.nan, x[:, 0])
    x[[0, 5], 1] = np.nan
    model = scoring_bench.DeepGPWrapper(steps=3, inducing=3).fit(x, y)
    (q, levels), found = model.predict_distribution(x[:4])
    assert q.shape == (4, 99) == (4, len(levels))
    assert (np.diff(q) > 0).all()
    assert found["train_range"] == (np.nanmin(y), np.nanmax(y))
    np.testing.assert_array_equal(found["mean"], model.predict(x[:4]))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_runs(path, tmp_path):
    assert run(path, "--smoke", cwd=tmp_path).strip()
