"""What holds of the code itself."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import dgp_ppl

ROOT = Path(dgp_ppl.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# Imports run from later floors to earlier ones. Private files are the ground floor; a file of none
# of these floors is on the top one.
FLOORS = [
    set(),
    {"linalg", "sde"},
    {"kernels", "means", "inducing", "mixture", "likelihoods"},
    {"conditional"},
    {"gp"},
    {"observe", "minibatch"},
    {"initialize"},
    {"models", "inference"},
    {"metrics", "datasets", "passes", "sites"},
    {"predict", "draws"},
    {"diagnostics", "pointwise"},
    {"groups"},
    {"inferencedata"},
]
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}
TOP = len(FLOORS)


def module(path):
    """A file's dotted name."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path):
    """The modules of the package that a file imports, by their parts below it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{a.name}" for a in node.names]
            names = [n if _is_module(n) else node.module for n in names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        else:
            continue
        yield from (n.split(".")[1:] for n in names if n.split(".")[0] == "dgp_ppl")


def _is_module(name):
    path = ROOT.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def floor(parts):
    """The floor of a module, by its parts below the package."""
    if parts and parts[0].startswith("_"):
        return 0
    return FLOOR.get(parts[0], TOP) if parts else TOP


@pytest.mark.parametrize("path", FILES, ids=module)
def test_imports_run_downwards(path):
    own = module(path).split(".")[1:]
    if not own:  # the package itself: public names
        return
    for other in imported(path):
        level = floor(other) == floor(own) and (floor(own) in (0, TOP) or other[0] == own[0])
        assert floor(other) < floor(own) or level, f"{module(path)} imports {'.'.join(other)}"


def test_models_and_inference_never_import_each_other():
    for path in FILES:
        own = module(path).split(".")[1:2]
        for other in imported(path):
            assert {*own, *other[:1]} != {"models", "inference"}, module(path)


def test_imports_make_no_circle():
    graph = {module(p): {".".join(["dgp_ppl", *o]) for o in imported(p)} for p in FILES}
    graph = {n: o & set(graph) - {n} for n, o in graph.items()}
    while graph:
        free = {n for n, others in graph.items() if not others}
        assert free, f"imports in a circle among {sorted(graph)}"
        graph = {n: others - free for n, others in graph.items() if n not in free}


@pytest.mark.parametrize("path", FILES, ids=module)
def test_no_file_is_over_400_lines(path):
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize("path", FILES, ids=module)
def test_names_of_a_module_exist_and_are_documented(path):
    found = importlib.import_module(module(path))
    assert found.__doc__, f"{module(path)} has no docstring"
    public = [n for n in getattr(found, "__all__", vars(found)) if not n.startswith("_")]
    for name in public:
        value = getattr(found, name)
        if getattr(value, "__module__", None) != found.__name__:
            continue
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue
        assert inspect.getdoc(value), f"{module(path)}.{name} has no docstring"


def test_public_names_are_re_exports():
    """Written ``import x as x``, which type checkers take for public."""
    for node in ast.walk(ast.parse((ROOT / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                assert name.asname == name.name
                assert getattr(dgp_ppl, name.name) is not None


def test_importing_switches_nothing():
    """Nothing global, nothing at import (style.md, rule 9)."""
    code = """
import jax, numpyro, warnings
def state():
    return {n: getattr(jax.config, n) for n in jax.config.values}, numpyro.util._VALIDATION
try:
    before = state()
except AttributeError:
    before = None
x64 = jax.config.jax_enable_x64
filters = list(warnings.filters)
import dgp_ppl
assert not x64 and not jax.config.jax_enable_x64
assert before is None or state() == before
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
