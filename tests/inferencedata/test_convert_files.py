"""Trees survive files, and load without this library."""

import subprocess
import sys

import pytest
import xarray
from support.trees import KEY, X, Y, deep, fitted

import dgp_ppl as dgp


@pytest.fixture(scope="module")
def stored():
    scale = dgp.Standardizer.fit(X, Y)
    guide, params = fitted(deep, scale.inputs(X), scale.outputs(Y))
    return dgp.to_inferencedata(
        KEY, deep, guide, params, X, Y, num_samples=60, num_prior_samples=4, passes=2,
        standardizer=scale, test=(X[:4], Y[:4]), attrs={"config": '{"a": 1}'},
    )  # fmt: skip


def test_files_load_back_equal(stored, tmp_path):
    stored.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    back = xarray.open_datatree(tmp_path / "tree.nc", engine="h5netcdf")
    xarray.testing.assert_equal(stored, back)
    for group in stored.children:
        for name in stored[group].data_vars:
            assert stored[group][name].attrs == back[group][name].attrs
    assert back.attrs == stored.attrs


_ALONE = """
import importlib.util, sys

GONE = ("dgp_ppl", "jax", "jaxlib", "numpyro", "equinox", "optax")
find = importlib.util.find_spec
importlib.util.find_spec = lambda n, p=None: None if n.split(".")[0] in GONE else find(n, p)

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in GONE:
            raise ImportError(name + " is not here")

sys.meta_path.insert(0, Refuse())
import arviz_stats, xarray
tree = xarray.open_datatree(sys.argv[1], engine="h5netcdf")
found = arviz_stats.loo(tree)
print(sorted(tree.children), found.elpd, float(tree["posterior"]["l1.v"].mean()))
"""


@pytest.mark.slow
def test_files_open_without_this_library(stored, tmp_path):
    stored.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    run = subprocess.run(
        [sys.executable, "-c", _ALONE, str(tmp_path / "tree.nc")], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "log_likelihood" in run.stdout
