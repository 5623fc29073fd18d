"""Rules about files, imports and names of the package and its tests: one test for each rule.

A *room* is a package of `dgp_ppl`, or a file next to the packages. Its files are private
(``_fit.py``); other rooms may import them, downwards. Its ``__init__``, the room's *face*, exports
what users may import.
"""

import ast
import contextlib
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import dgp_ppl

ROOT = Path(dgp_ppl.__file__).parent
TESTS = Path(__file__).parent
PROJECT = TESTS.parent
MOST_LINES, MOST_FILES = 400, 14


def module(path):
    """Return the dotted name of a file."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(ROOT.rglob("*.py"))
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


def nodes_on_cycles(graph):
    """Return the part of a graph that lies on cycles or depends on them; empty without cycles."""
    graph = {n: set(others) & set(graph) - {n} for n, others in graph.items()}
    while graph:
        free = {n for n, others in graph.items() if not others}
        if not free:
            return graph
        graph = {n: others - free for n, others in graph.items() if n not in free}
    return {}


def test_imports_of_files_make_no_circle():
    files = {n: others - FACES for n, others in GRAPH.items() if n not in FACES}
    assert not nodes_on_cycles(files)


def test_imports_between_rooms_run_downwards():
    """Files and packages inside a package depend on each other in one direction."""
    circles = {}
    for face in sorted(FACES):
        inside = {n for n in MODULES if n.startswith(f"{face}.")}
        depth = face.count(".") + 2
        rooms = {}
        for name in inside - FACES:
            found = {".".join(o.split(".")[:depth]) for o in GRAPH[name] if o in inside}
            rooms.setdefault(".".join(name.split(".")[:depth]), set()).update(found)
        if circle := nodes_on_cycles(rooms):
            circles[face] = circle
    assert not circles


def test_models_and_inference_meet_by_site_names_alone():
    forbidden = {
        "core": {"models", "inference", "prediction", "inferencedata"},
        "models": {"inference"},
        "inference": {"models"},
    }
    found = [
        f"{name} imports {other}"
        for name, others in GRAPH.items()
        for other in others
        if {*other.split(".")[1:2]} & forbidden.get("".join(name.split(".")[1:2]), set())
    ]
    assert not found


def test_faces_export_what_exists_and_hide_no_module():
    wrong = []
    for face in sorted(FACES):
        found = importlib.import_module(face)
        names = getattr(found, "__all__", [])
        if len(set(names)) < len(names):
            wrong.append(f"{face}.__all__ has repeated names")
            continue
        for name in names:
            inner = f"{face}.{name}"
            if not hasattr(found, name):
                wrong.append(f"{face}.__all__ has {name!r}, which does not exist")
            elif (inner in MODULES) != inspect.ismodule(getattr(found, name)):
                wrong.append(f"{face} exports {name!r}, which hides the module {inner}")
    assert not wrong


def test_files_are_private_and_short_and_folders_are_small():
    wrong = []
    for path in FILES:
        public = not path.name.startswith("_") and path.parent != ROOT
        if public:
            wrong.append(f"{module(path)} is public, wanted a name with an underscore")
        if (lines := len(path.read_text().splitlines())) > MOST_LINES:
            wrong.append(f"{module(path)} has {lines} lines, wanted at most {MOST_LINES}")
    for folder in {p.parent for p in FILES}:
        if (files := len(list(folder.glob("*.py")))) > MOST_FILES:
            wrong.append(f"{folder.relative_to(PROJECT)} has {files} files, wanted {MOST_FILES}")
    assert not wrong


def test_private_names_stay_in_their_file():
    wrong = [
        f"{name} imports {alias.name} from {node.module}"
        for name, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dgp_ppl")
        for alias in node.names
        if alias.name.startswith("_") and f"{node.module}.{alias.name}" not in MODULES
    ]
    assert not wrong


def is_public(name):
    """Return whether users may import a module, because it is the package or a room."""
    parts = name.split(".")
    return len(parts) <= 2 and not any(p.startswith("_") for p in parts)


def public_objects():
    """Yield the public functions, classes and methods of the rooms, with their names."""
    for name in filter(is_public, sorted(MODULES)):
        found = importlib.import_module(name)
        for exported in found.__all__:
            value = getattr(found, exported)
            yield f"{name}.{exported}", value
            if inspect.isclass(value):
                for member in dir(value):
                    if not member.startswith("_") or member in ("__init__", "__call__"):
                        yield f"{name}.{exported}.{member}", getattr(value, member)


def test_help_of_public_names_is_there_and_shows_no_addresses():
    """A default that is a function shows its address: let None stand for it."""
    wrong, shown = [], 0
    for name, value in public_objects():
        if inspect.isfunction(value) or inspect.isclass(value):
            own = value.__module__.startswith("dgp_ppl") and name.count(".") == 2
            if own and not inspect.getdoc(value):
                wrong.append(f"{name} has no docstring")
        if callable(value):
            with contextlib.suppress(TypeError, ValueError):  # some have no signature
                shown += 1
                if " at 0x" in str(inspect.signature(value)):
                    wrong.append(f"{name}{inspect.signature(value)}")
    assert shown > 200
    assert not wrong


def test_programs_and_pages_import_public_modules_alone():
    found = {}
    for folder in ("examples", "benchmarks", "docs"):
        for path in (PROJECT / folder).rglob("*.py"):
            found[path] = imported(path.read_text(), path.name)
    for path in [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]:
        found[path] = re.findall(r"(?:from|import) (dgp_ppl[\w.]*)", path.read_text())
    wrong = [
        f"{p.name} imports {n}" for p, names in found.items() for n in names if not is_public(n)
    ]
    assert not wrong


def test_tests_lie_where_their_files_do():
    """Tests of ``dgp_ppl/ROOM/_FILE.py`` are in ``tests/ROOM/test_FILE[_ASPECT].py``."""
    wrong = []
    for path in sorted(TESTS.rglob("test_*.py")):
        folder, stem = path.relative_to(TESTS).parent, path.stem.removeprefix("test_")
        if folder.parts[:1] == ("contracts",) or (not folder.parts and stem in _OF_THE_PROJECT):
            continue
        files = {p.stem.removeprefix("_") for p in (ROOT / folder).glob("*.py")}
        files |= {folder.name, "errors"}  # for tests of the whole room, and of its error texts
        parts = stem.split("_")
        starts = {"_".join(parts[: i + 1]) for i in range(len(parts))}
        if not starts & files:
            wrong.append(f"{path.relative_to(TESTS)}: no such file in dgp_ppl/{folder}")
    assert not wrong


_OF_THE_PROJECT = {"structure", "examples", "tutorial", "docs", "imports"}


def test_importing_switches_nothing():
    """Importing `dgp_ppl` changes no option of JAX or NumPyro."""
    code = """
import jax, numpyro
def state():
    return {n: getattr(jax.config, n) for n in jax.config.values}, numpyro.util._VALIDATION
try:
    before = state()
except AttributeError:
    before = None
x64 = jax.config.jax_enable_x64
import dgp_ppl
assert not x64 and not jax.config.jax_enable_x64
assert before is None or state() == before
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
