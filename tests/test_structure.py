"""Rules about files, imports and names of the package and its tests.

A *room* is a package of `dgp_ppl`, or a file next to the packages. The files of a package are
private (``_fit.py``). Its ``__init__``, the room's *face*, exports what other rooms may use.
"""

import ast
import contextlib
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dgp_ppl

ROOT = Path(dgp_ppl.__file__).parent
TESTS = Path(__file__).parent
PROJECT = TESTS.parent
FILES = sorted(ROOT.rglob("*.py"))
FOLDERS = sorted({p.parent for p in FILES})
OUTSIDE = sorted(
    p for folder in ("examples", "benchmarks", "docs") for p in (PROJECT / folder).rglob("*.py")
)
PAGES = sorted([PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")])
MOST_LINES, MOST_FILES, MOST_ROOT_FILES = 400, 12, 14
MOST_WORDS = 250  # in the docstring of a class


def module(path):
    """Return the dotted name of a file."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(p): p for p in FILES}
FACES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


def imported(source, name="a program"):
    """Yield the modules of `dgp_ppl` that a program imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            if node.module.split(".")[0] == "dgp_ppl":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "dgp_ppl")


GRAPH = {name: set(imported(path.read_text(), name)) for name, path in MODULES.items()}


def package(name):
    """Return the package of a module; a package is its own."""
    return name if name in FACES else name.rpartition(".")[0]


def allowed_import(importer, name):
    """Return where `importer` may import the names of module `name` from.

    It is the outermost package or module around `name` that does not contain the importer.
    """
    inside, parts = package(importer).split("."), name.split(".")
    depth = next((i for i, (a, b) in enumerate(zip(inside, parts, strict=False)) if a != b), None)
    depth = min(len(inside), len(parts)) if depth is None else depth
    return ".".join(parts[: depth + 1])


def nodes_on_cycles(graph):
    """Return the part of a graph that lies on cycles or depends on them; empty without cycles."""
    graph = {n: set(others) & set(graph) - {n} for n, others in graph.items()}
    while graph:
        free = {n for n, others in graph.items() if not others}
        if not free:
            return graph
        graph = {n: others - free for n, others in graph.items() if n not in free}
    return {}


@pytest.mark.parametrize("name", sorted(MODULES.keys() - FACES))
def test_other_rooms_are_entered_by_their_faces(name):
    for other in GRAPH[name]:
        wanted = allowed_import(name, other)
        assert other == wanted, f"{name} imports {other}, wanted from {wanted} import ..."


def test_imports_make_no_circle():
    files = {n: others - FACES for n, others in GRAPH.items() if n not in FACES}
    assert not nodes_on_cycles(files)


@pytest.mark.parametrize("face", sorted(FACES))
def test_imports_between_rooms_run_downwards(face):
    """Files and packages inside a package depend on each other in one direction."""
    inside = {n for n in MODULES if n.startswith(f"{face}.")}

    def room(name):
        return ".".join(name.split(".")[: face.count(".") + 2])

    rooms = {room(n): set() for n in inside}
    for name in inside - FACES:
        rooms[room(name)] |= {room(o) for o in GRAPH[name] if o in inside}
    assert not nodes_on_cycles(rooms)


def test_models_and_inference_never_import_each_other():
    for name, others in GRAPH.items():
        rooms = {tuple(n.split(".")[1:2]) for n in (name, *others)}
        assert (
            not rooms >= {("models",), ("inference",)}
            or name == "dgp_ppl"
            or (name.split(".")[1] not in ("models", "inference"))
        ), name


def test_the_core_knows_no_inference():
    for name in (n for n in GRAPH if n.startswith("dgp_ppl.core")):
        rooms = {o.split(".")[1] for o in GRAPH[name]}
        assert not rooms & {"models", "inference", "prediction", "inferencedata"}, name


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imported_names_are_exported_by_their_modules(name):
    """A name that another module imports is in the ``__all__`` of where it is imported from."""
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            exported = importlib.import_module(node.module).__all__
            missing = {a.name for a in node.names} - set(exported)
            missing = {n for n in missing if f"{node.module}.{n}" not in MODULES}
            assert not missing, f"{name} imports {missing}, wanted in {node.module}.__all__"


@pytest.mark.parametrize("face", sorted(FACES))
def test_a_face_exports_what_exists_and_shadows_nothing(face):
    found = importlib.import_module(face)
    assert len(set(found.__all__)) == len(found.__all__)
    for name in found.__all__:
        assert hasattr(found, name), f"{face}.__all__ has {name!r}"
        inner = f"{face}.{name}"
        assert (inner in MODULES) == inspect.ismodule(getattr(found, name)), (
            f"{face} exports {name!r}, which hides the module {inner}"
        )


@pytest.mark.parametrize("path", FILES, ids=module)
def test_files_of_rooms_are_private(path):
    inner = path.parent != ROOT and path.name != "__init__.py"
    assert path.name.startswith("_") or not inner


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: module(p / "__init__.py"))
def test_folders_are_small(folder):
    most = MOST_ROOT_FILES if folder == ROOT else MOST_FILES
    assert len([p for p in FILES if p.parent == folder]) <= most


@pytest.mark.parametrize("path", FILES, ids=module)
def test_no_file_is_too_long(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", FILES, ids=module)
def test_docstrings_of_classes_are_short(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            words = len((ast.get_docstring(node) or "").split())
            assert words <= MOST_WORDS, f"{node.name}: {words} words; move the theory to the docs"


@pytest.mark.parametrize("path", FILES, ids=module)
def test_types_of_signatures_have_no_quotes(path):
    """`help` shows postponed types as they are written; quotes would be shown twice."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            arguments = [a for a in ast.walk(node.args) if isinstance(a, ast.arg)]
            for written in [node.returns, *(a.annotation for a in arguments)]:
                assert not isinstance(written, ast.Constant) or written.value is None, (
                    f"{module(path)}.{node.name}: {ast.unparse(written)}"
                )


@pytest.mark.parametrize("path", FILES, ids=module)
def test_private_names_stay_in_their_file(path):
    """No file uses a private name that another file defines."""
    tree = ast.parse(path.read_text())
    names = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    names |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and _is_own(n)}
    names |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dgp_ppl"):
            private = [a.name for a in node.names if a.name.startswith("_")]
            private = [n for n in private if f"{node.module}.{n}" not in MODULES]
            assert not private, f"{module(path)} imports {private} from {node.module}"
        if isinstance(node, ast.Attribute) and not _is_own(node) and _is_private(node.attr):
            assert node.attr in names | FOREIGN, f"{module(path)}: {ast.unparse(node)}"


FOREIGN = {"_replace", "_fields", "_asdict", "_mask"}  # of NamedTuple and MaskedDistribution


def _is_private(name):
    return name.startswith("_") and not name.startswith("__")


def _is_own(node):
    value = node.value
    named = isinstance(value, ast.Name) and value.id in ("self", "cls", "other")
    return named or (isinstance(value, ast.Call) and ast.unparse(value) == "super()")


def public(name):
    """Return whether users may import a module, because it is the package or a room."""
    parts = name.split(".")
    return len(parts) <= 2 and not any(p.startswith("_") for p in parts)


def public_callables():
    """Yield the public functions, classes and methods of the rooms, with their names."""
    for name in filter(public, sorted(FACES | set(MODULES))):
        found = importlib.import_module(name)
        for exported in found.__all__:
            value = getattr(found, exported)
            yield f"{name}.{exported}", value
            if inspect.isclass(value):
                for member in dir(value):
                    if not member.startswith("_") or member in ("__init__", "__call__"):
                        yield f"{name}.{exported}.{member}", getattr(value, member)


def test_signatures_in_help_show_no_addresses():
    """A default that is a function shows its address: let None stand for it."""
    shown = {}
    for name, value in public_callables():
        if callable(value) and not inspect.ismodule(value):
            with contextlib.suppress(TypeError, ValueError):  # some have no signature
                shown[name] = str(inspect.signature(value))
    assert len(shown) > 300
    assert {n: s for n, s in shown.items() if " at 0x" in s} == {}


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda p: p.relative_to(PROJECT).as_posix())
def test_programs_import_public_modules_alone(path):
    for name in imported(path.read_text(), path.name):
        assert public(name), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(PROJECT).as_posix())
def test_pages_import_public_modules_alone(path):
    for name in re.findall(r"(?:from|import) (dgp_ppl[\w.]*)", path.read_text()):
        assert public(name), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=module)
def test_names_of_a_module_exist_and_are_documented(path):
    found = importlib.import_module(module(path))
    assert found.__doc__, f"{module(path)} has no docstring"
    assert hasattr(found, "__all__"), f"{module(path)} has no __all__"
    for name in found.__all__:
        value = getattr(found, name)
        if getattr(value, "__module__", None) != found.__name__:
            continue
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue
        assert inspect.getdoc(value), f"{module(path)}.{name} has no docstring"


def test_tests_lie_where_their_files_do():
    """Tests of ``dgp_ppl/ROOM/_FILE.py`` are in ``tests/ROOM/test_FILE[_ASPECT].py``."""
    for path in sorted(TESTS.rglob("test_*.py")):
        folder, stem = path.relative_to(TESTS).parent, path.stem.removeprefix("test_")
        pages = stem in ("structure", "examples", "tutorial", "docs")
        if folder.parts[:1] == ("contracts",) or pages:
            continue
        files = {p.stem.removeprefix("_") for p in (ROOT / folder).glob("*.py")}
        files.add(folder.name)  # for tests of the whole room
        parts = stem.split("_")
        starts = {"_".join(parts[: i + 1]) for i in range(len(parts))}
        assert starts & files, f"{path.relative_to(TESTS)}: no such file in dgp_ppl/{folder}"


COVERED = {  # inner parts of other files, and the test files that cover them
    "_typing.py": "inference/test_params.py",
    "_errors.py": "inference/svi/test_loop.py",
    "comparison/_fit_method.py": "comparison/test_run.py",
    "comparison/report/_figures.py": "comparison/test_compare.py",
    "inference/samplers/_em.py": "inference/samplers/test_mcem.py",
    "inference/svi/_loop_many.py": "inference/svi/test_fit_many.py",
    "inference/svi/_result.py": "inference/svi/test_fit_many.py",
    "inference/svi/_setup.py": "inference/svi/test_fit.py",
    "models/_stack.py": "models/test_deep_gp.py",
    "plots/_figure.py": "contracts/test_plots.py",
}


def defines_something(path):
    """Return whether a file defines functions or classes."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in nodes)


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.name != "__init__.py" and defines_something(p)], ids=module
)
def test_every_file_has_a_test_file_by_its_path(path):
    """The tests of ``dgp_ppl/ROOM/_FILE.py`` start with ``tests/ROOM/test_FILE``."""
    name = path.relative_to(ROOT)
    covered = COVERED.get(name.as_posix())
    if covered is None:
        stem = f"test_{path.stem.removeprefix('_')}"
        folder = TESTS / name.parent
        found = [*folder.glob(f"{stem}.py"), *folder.glob(f"{stem}_*.py")]
        assert found, f"{name} has no tests/{name.parent}/{stem}.py; write one, or add to COVERED"
    else:
        assert (TESTS / covered).is_file(), f"COVERED: {name} names {covered}, which does not exist"


def test_covered_files_exist_and_have_no_test_file():
    for name in COVERED:
        path = ROOT / name
        assert path.is_file(), f"COVERED names {name}, which does not exist"
        own = (TESTS / name).with_name(f"test_{path.stem.removeprefix('_')}.py")
        assert not own.exists(), f"{name} has its test file; remove it from COVERED"


def test_importing_switches_nothing():
    """Importing `dgp_ppl` changes no option of JAX or NumPyro."""
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
