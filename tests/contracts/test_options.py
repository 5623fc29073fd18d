"""No option of the library's functions has the name of a model's argument.

A function that forwards keyword arguments to a model also has options. An option with the name of a
model's argument would capture it; ``fit_mcem(..., kernel=...)`` once did.
"""

import importlib
import inspect
import pkgutil

import dgp_ppl as dgp
from dgp_ppl import models

DATA = {"x", "y"}  # arguments that a function may share with the model


def functions(module):
    """Return the functions that a module exports, by name."""
    found = {n: getattr(module, n) for n in module.__all__}
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
