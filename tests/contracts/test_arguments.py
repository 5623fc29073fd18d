"""Arguments of public functions: bad ones are named, and none captures an argument of a model."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest
from support.fits import SHALLOW, X, Y, Z, shallow
from support.helpers import KEY

import dgp_ppl as dgp
from dgp_ppl import initialize, models
from dgp_ppl.models import svgp


def functions_of_a_key():
    """Return the public functions whose first argument is a key, by name."""
    faces = [m.name for m in pkgutil.iter_modules(dgp.__path__) if not m.name.startswith("_")]
    found = {}
    for face in faces:
        module = importlib.import_module(f"dgp_ppl.{face}")
        for function in (getattr(module, n) for n in module.__all__):
            if inspect.isfunction(function):
                parameters = list(inspect.signature(function).parameters.values())
                if parameters and parameters[0].name == "key":
                    found[function.__name__] = function
    return found


FUNCTIONS = functions_of_a_key()


def test_what_is_no_key_is_refused_first():
    """Before any other argument is looked at."""
    assert {"fit", "predict", "evaluate", "to_inferencedata", "deep_gp"} <= FUNCTIONS.keys()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for function in FUNCTIONS.values():
        parameters = inspect.signature(function).parameters.values()
        needed = [p for p in parameters if p.default is p.empty and p.kind not in kinds][1:]
        for key in (0, None, [1, 2]):
            with pytest.raises(TypeError, match=r"key is .*, wanted one random key"):
                function(key, **{p.name: None for p in needed})


def test_inputs_that_are_not_finite():
    """Rows are named; nothing is computed."""
    x = np.array(X)
    x[3], x[7] = np.nan, np.inf
    fit, place = shallow(4), r"x is NaN or infinite in 2 of 20 rows \[3, 7\]; fill in"
    with pytest.raises(dgp.DataError, match=f"^predict: {place}"):
        dgp.predict(KEY, svgp, SHALLOW, fit, x, z=Z)
    with pytest.raises(dgp.DataError, match=f"^Standardizer.fit: {place}"):
        dgp.Standardizer.fit(x, Y)
    with pytest.raises(dgp.DataError, match=f"^initialize.deep_gp: {place}"):
        initialize.deep_gp(KEY, x, num_inducing=3, depth=2)
    with pytest.raises(dgp.DataError, match=r"^evaluate: argument 'x' is NaN.*rows \[3, 7\]: fill"):
        dgp.evaluate(KEY, svgp, SHALLOW, fit, x, Y, z=Z)
    with pytest.raises(dgp.NonFiniteLossError, match=r"argument 'x' is NaN or inf.*\]: fill in"):
        shallow_of(x)


def shallow_of(x, y=Y, guide=SHALLOW):
    return dgp.fit(KEY, svgp, guide, x, y, z=Z, steps=4, progress=False)


def test_inputs_that_are_no_numbers():
    text = np.array([["a", "b"]] * 20)
    with pytest.raises(TypeError, match="predict: x holds values of type <U1, wanted numbers; dgp"):
        dgp.predict(KEY, svgp, SHALLOW, shallow(4), text, z=Z)
    with pytest.raises(TypeError, match=r"argument 'x' holds objects .*str.*wanted numbers"):
        shallow_of(text.astype(object))
    with pytest.raises(TypeError, match="the first argument is a list of numbers, wanted an array"):
        shallow_of(np.asarray(X).tolist())
    with pytest.raises(TypeError, match=r"fit: guide is None, wanted a guide, such as dgp_ppl.Mea"):
        shallow_of(X, guide=None)


DATA = {"x", "y"}  # arguments that a function may share with the model


def functions(module):
    """Return the functions that a module exports, by name."""
    found = {n: getattr(module, n) for n in getattr(module, "__all__", ())}
    return {n: f for n, f in found.items() if inspect.isfunction(f)}


def programs():
    """Return all public functions and methods of the package's faces, by name."""
    found = {}
    for info in pkgutil.walk_packages(dgp.__path__, "dgp_ppl."):
        if not info.ispkg or any(part.startswith("_") for part in info.name.split(".")):
            continue
        face = importlib.import_module(info.name)
        found |= {f"{info.name}.{n}": f for n, f in functions(face).items()}
        for name, kind in inspect.getmembers(face, inspect.isclass):
            methods = inspect.getmembers(kind, inspect.isfunction)
            found |= {
                f"{name}.{n}": f
                for n, f in methods
                if name in face.__all__ and not n.startswith("_") and "dgp_ppl" in f.__module__
            }
    return found | functions(dgp)


def names(function, *kinds):
    """Return the names of a function's parameters of these kinds."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind in kinds}


NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
FORWARDING = {
    n: f for n, f in programs().items()
    if names(f, inspect.Parameter.VAR_KEYWORD) and not n.startswith("dgp_ppl.models")
}  # fmt: skip
MODELS = {
    n: f for n, f in functions(models).items() if next(iter(inspect.signature(f).parameters)) == "x"
}


def test_no_option_captures_an_argument_of_a_model():
    """Functions that forward keyword arguments to a model have options too."""
    assert {"fit", "fit_mcem", "run_mcmc", "predict", "annealed_evidence"} <= set(FORWARDING)
    assert {"GlobalInducing.start_from", "LatentInputs.reconstruct"} <= set(FORWARDING)
    assert {"deep_gp", "svgp", "diff_gp", "gplvm", "bnn", "sgpr"} <= set(MODELS)
    captured = [
        f"{name} captures {options}, arguments of models.{model}"
        for name, function in FORWARDING.items()
        for model, program in MODELS.items()
        if (options := (names(function, *NAMED) - DATA) & names(program, *NAMED))
    ]
    assert not captured
