"""Folders of `fit_mcem`: other optimisers, and damaged files."""

import json
from functools import partial

import numpy as np
import optax
import pytest
from support.helpers import KEY
from support.mcem_runs import X, Y, slope

import dgp_ppl as dgp
from dgp_ppl.inference.samplers._mcem import fit_mcem

SHORT = {"steps": 20, "num_samples": 2, "thinning": 1, "progress": False}


@pytest.mark.slow
def test_another_optimizer_in_the_folder(tmp_path):
    """Optax's optimisers are functions, so their updates are compared."""
    run = partial(fit_mcem, KEY, slope, X, Y, checkpoint=tmp_path, **SHORT)
    first = run(optimizer=optax.adam(1e-2))
    assert run(optimizer=optax.adam(1e-2)).params == first.params
    for other in (
        optax.adam(1e-4),
        optax.adam(1e-2, b2=0.99),
        optax.adam(1e-2, eps=1e-5),
        optax.adam(optax.piecewise_constant_schedule(1e-2, {15: 0.1})),
        optax.adamw(1e-2, weight_decay=0.1),
        optax.sgd(1e-2),
        None,
    ):
        with pytest.raises(dgp.DataError, match="holds another run: its optimizer differ"):
            run(optimizer=other)


@pytest.mark.slow
def test_a_damaged_folder(tmp_path):
    run = partial(fit_mcem, KEY, slope, X, Y, checkpoint=tmp_path, **SHORT)
    run()
    latest, state = (tmp_path / "fit" / n for n in ("latest.json", "state-1.npz"))
    record, whole = json.loads(latest.read_text()), state.read_bytes()
    for name, value in (("steps", -5), ("steps", 2.5), ("steps", 0), ("parts", -1), ("parts", "1")):
        latest.write_text(json.dumps(record | {name: value}))
        with pytest.raises(dgp.DataError, match=rf"{name} is .*the run's folder is damaged"):
            run()
    latest.write_text(json.dumps(record))
    with np.load(state) as file:
        arrays = list(file.values())
    for broken in (arrays[:-1], [a[None] for a in arrays]):
        np.savez(state, *broken)
        with pytest.raises(dgp.DataError, match=rf"{len(broken)} arrays, wanted {len(arrays)} of"):
            run()
    state.write_bytes(whole)
    run()
