"""Fits whose rows are divided among devices of one process, and of two."""

import json
import os
import socket
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from jax.sharding import Mesh
from support.fits import X, shallow
from support.helpers import KEY
from support.mesh_runs import fitted

import dgp_ppl as dgp
from dgp_ppl.inference.programs._rows import split_padded
from dgp_ppl.models import deep_gp

ROUNDING = 1e-6  # Adam's first steps have the sign of gradients that are zero but for rounding


def start(*words, devices=1):
    flags = [os.environ.get("XLA_FLAGS", ""), f"--xla_force_host_platform_device_count={devices}"]
    return subprocess.Popen(
        [sys.executable, "-m", "support.mesh_runs", *map(str, words)],
        env=os.environ | {"XLA_FLAGS": " ".join(flags)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def said(process):
    out, err = process.communicate()
    assert process.returncode == 0, err[-3000:]
    found = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {f.pop("case"): f for f in found}


def test_a_mesh_of_one_device_changes_nothing(tmp_path, monkeypatch):
    with monkeypatch.context() as unpadded:  # which the rows of a mesh are
        unpadded.setattr(
            "dgp_ppl.inference.svi._setup.split_padded",
            lambda *call: split_padded(*call[:3], False),
        )
        wanted = shallow(6)
    found = shallow(6, mesh="auto", checkpoint=tmp_path)
    np.testing.assert_allclose(found.losses, wanted.losses, rtol=1e-5)
    np.testing.assert_array_equal(shallow(6, mesh="auto", checkpoint=tmp_path).losses, found.losses)
    # With its checkpoint the fit goes on on other devices too.
    with pytest.warns(UserWarning, match="was begun with mesh 1, now None; the run goes on"):
        np.testing.assert_array_equal(shallow(6, checkpoint=tmp_path).losses, found.losses)
    again = shallow(3, start=found, mesh=Mesh(np.array(jax.devices()[:1]), ("any",)))
    np.testing.assert_allclose(again.losses, shallow(3, start=wanted).losses, rtol=1e-4)


def test_wrong_meshes():
    with pytest.raises(TypeError, match=r"fit: mesh is 4, wanted a jax\.sharding\.Mesh, 'auto' or"):
        shallow(3, mesh=4)
    with pytest.raises(ValueError, match="wanted 1 with a checkpoint, keep_best or a mesh"):
        shallow(3, mesh="auto", restarts=2)

    def model(z):
        x = np.linspace(0, 1, 8)[:, None]
        deep_gp(x, x[:, 0], z=z)

    guide = dgp.MeanField(model)
    with pytest.raises(ValueError, match="no argument of the model has 8 rows, the size of its"):
        dgp.fit(KEY, model, guide, [X[:3], X[:3]], steps=2, mesh="auto", progress=False)


@pytest.mark.slow
def test_four_devices():
    """The losses and params of one device but for rounding, with 103 rows and 21 in a minibatch."""
    found = said(start("devices", devices=4))
    assert found.pop("not finite")["step"] == 1
    sums = found.pop("exchanged")
    assert len(found) == 8
    for case, values in found.items():
        assert values["difference"] < ROUNDING, case
    # Of a step they exchange sums over the minibatch: the gradients, some before the chain rule's
    # last, small factors, and the loss. The rows themselves (inputs and target) stay where they
    # are, if the strata that they are drawn from do not lie on two devices.
    for case, minibatch in (("minibatches", 21 * 3), ("own_strata", 0), ("rows", 0)):
        values = sums[case]
        assert values["kinds"] == ["all-reduce"]
        assert values["numbers"] - minibatch <= 2 * values["params"]


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.mark.slow
def test_two_processes_of_which_one_is_killed(tmp_path):
    """The other ends with an error that says what to do, and both go on from the checkpoint."""
    steps, latest = 1500, tmp_path / "latest.json"
    port = free_port()
    first, second = (start("process", i, port, tmp_path, steps) for i in range(2))
    while not latest.exists() or not json.loads(latest.read_text())["steps"]:
        assert first.poll() is second.poll() is None
        time.sleep(0.01)
    second.kill()
    _, err = first.communicate()
    second.communicate()
    assert first.returncode != 0
    assert "fit: steps on the 2 processes of the mesh failed, because one of them ended" in err
    assert json.loads(latest.read_text())["steps"] < steps
    port = free_port()
    found = [said(p) for p in [start("process", i, port, tmp_path, steps) for i in range(2)]]
    assert found[0]["fit"] == found[1]["fit"]
    for case in ("another key", "another rows"):
        assert "the processes of the mesh have different arguments" in found[0][case]["message"]
    with jax.enable_x64(True):
        wanted = fitted(steps=steps)
    np.testing.assert_allclose(found[0]["fit"]["losses"][:50], wanted.losses[:50], rtol=ROUNDING)
    np.testing.assert_allclose(found[0]["fit"]["noise"], float(wanted.params["noise"]), rtol=0.05)
