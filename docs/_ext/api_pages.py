"""Write the pages of the API reference, docs/api/*.rst, from the rooms' ``__all__``.

Each public object has one entry, at the shortest path that a user can import it from. A room's page
starts with a table of its objects.
"""

import importlib
import inspect
import shutil
import sys
from pathlib import Path
from typing import Any, get_origin

from sphinx.application import Sphinx

import dgp_ppl

#: Pages: file, title, the room, and the part of the room where the objects must be defined.
PAGES = [
    ("layers", "Layers and likelihood sites", "dgp_ppl.core", ""),
    ("kernels", "Kernels", "dgp_ppl.kernels", ""),
    ("means", "Mean functions", "dgp_ppl.means", ""),
    ("likelihoods", "Likelihoods", "dgp_ppl.likelihoods", ""),
    ("models", "Models", "dgp_ppl.models", ""),
    ("initialize", "Initial values", "dgp_ppl.initialize", ""),
    ("guides", "Guides", "dgp_ppl.inference", "guides"),
    ("samplers", "Samplers", "dgp_ppl.inference", "samplers"),
    ("evidence", "Evidence", "dgp_ppl.inference", "evidence"),
    ("training", "Training and objectives", "dgp_ppl.inference", "_"),
    ("prediction", "Prediction", "dgp_ppl.prediction", ""),
    ("persistence", "Fits in files", "dgp_ppl.persistence", ""),
    ("inferencedata", "ArviZ", "dgp_ppl.inferencedata", ""),
    ("criticism", "Criticism", "dgp_ppl.criticism", ""),
    ("metrics", "Metrics", "dgp_ppl.metrics", ""),
    ("plots", "Plots", "dgp_ppl.plots", ""),
    ("datasets", "Data sets", "dgp_ppl.datasets", ""),
    ("comparison", "Comparison", "dgp_ppl.comparison", ""),
    ("design", "Sequential design", "dgp_ppl.design", ""),
    ("report", "Reports", "dgp_ppl.report", ""),
    ("sklearn", "scikit-learn", "dgp_ppl.sklearn", ""),
    ("linalg", "Linear algebra", "dgp_ppl.linalg", ""),
]


def names(room: Any) -> list[str]:
    """A room's public names: its ``__all__``, or what it defines without an underscore."""
    own = (n for n, o in vars(room).items() if getattr(o, "__module__", "") == room.__name__)
    return list(getattr(room, "__all__", None) or [n for n in own if not n.startswith("_")])


def public_path(face: str, name: str) -> str:
    """The shortest public path of an object of a room."""
    own = getattr(importlib.import_module(face), name)
    short = getattr(dgp_ppl, name, None) if name in dir(dgp_ppl) else None
    return f"dgp_ppl.{name}" if short is own else f"{face}.{name}"


def entries(face: str, part: str = "") -> list[tuple[str, Any]]:
    """The public path and the object of every name of a room, or of a part of it."""
    room = importlib.import_module(face)
    found = [(public_path(face, name), getattr(room, name)) for name in names(room)]
    found = [(p, o) for p, o in found if _home(face, p, o).startswith(part)]
    if part.isidentifier() and not part.startswith("_"):  # names that only the inner room exports
        inner = importlib.import_module(f"{face}.{part}")
        found += [
            (public_path(f"{face}.{part}", name), getattr(inner, name))
            for name in names(inner)
            if not hasattr(room, name)
        ]
    return found


def _home(face: str, path: str, value: Any) -> str:
    """Where below a room an object is defined; "_" for one that no module below it has."""
    defined = getattr(value, "__module__", None) or ""
    if not defined.startswith(f"{face}."):  # an alias of a type: the innermost module with its name
        name = path.rpartition(".")[2]
        modules = [m for m in sys.modules if m.startswith(f"{face}.")]
        having = [m for m in modules if getattr(sys.modules[m], name, None) is value]
        defined = max(having, key=lambda m: m.count("."), default="")
    return defined.removeprefix(f"{face}.") if defined.startswith(f"{face}.") else "_"


def root_entries() -> list[tuple[str, Any]]:
    """What the package has beside its rooms: the standardiser and the errors."""
    told = {path for _, _, face, part in PAGES for path, _ in entries(face, part)}
    values = [(f"dgp_ppl.{n}", getattr(dgp_ppl, n)) for n in dir(dgp_ppl)]
    return [(p, o) for p, o in values if p not in told and not inspect.ismodule(o)]


def _directive(path: str, value: Any) -> str:
    if inspect.isclass(value):
        error = issubclass(value, BaseException)
        kind = "autoexception" if error else "autoclass"
        options = ["show-inheritance"] if error else ["members", "show-inheritance"]
    elif callable(value) and get_origin(value) is None and hasattr(value, "__qualname__"):
        kind, options = "autofunction", []
    else:
        kind, options = "autodata", ["no-value"]
    lines = "".join(f"   :{o}:\n" for o in options)
    return f".. {kind}:: {path}\n{lines}"


def _order(path: str) -> tuple[int, str]:
    """Sort what `dgp_ppl` itself exports before the rest, and both by name."""
    return path.count("."), path.rpartition(".")[2].lower()


def _heading(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n"


def _page(title: str, text: str, found: list[tuple[str, Any]]) -> str:
    found = sorted(found, key=lambda e: _order(e[0]))
    rows = [f"   ~{p}" for p, o in found if inspect.isclass(o) or callable(o)]
    table = "\n".join([".. autosummary::", "   :nosignatures:", "", *rows])
    body = "\n".join(_directive(path, value) for path, value in found)
    return "\n\n".join([_heading(title), text, table, body])


def _overview() -> str:
    pages = [*(name for name, *_ in PAGES), "dgp_ppl"]
    tree = ".. toctree::\n   :hidden:\n\n" + "\n".join(f"   {name}" for name in pages)
    parts = [_heading("API reference")]
    parts.append(
        "``import dgp_ppl as dgp`` has what most programs need. The first lines of each page "
        "say where to import the rest from. Every public name has one entry, under its shortest "
        "path."
    )
    parts.append(tree)
    for name, title, face, part in PAGES:
        rows = sorted({p for p, o in entries(face, part) if callable(o)}, key=_order)
        table = "\n".join(
            [".. autosummary::", "   :nosignatures:", "", *(f"   ~{p}" for p in rows)]
        )
        parts.append(f".. rubric:: :doc:`{title} <{name}>`\n\n{table}")
    rows = [p for p, _ in root_entries()]
    table = "\n".join([".. autosummary::", "   :nosignatures:", "", *(f"   ~{p}" for p in rows)])
    parts.append(f".. rubric:: :doc:`Units and errors <dgp_ppl>`\n\n{table}")
    return "\n\n".join(parts) + "\n"


def write(app: Sphinx) -> None:
    """Write all pages into docs/api; a page that has not changed keeps its time."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    pages = {"index": _overview()}
    for name, title, face, part in PAGES:
        text = f"Import from ``{face}``. Entries named ``dgp_ppl.NAME`` are in ``dgp_ppl`` too."
        doc = (importlib.import_module(face).__doc__ or "").strip() if not part else ""
        pages[name] = _page(title, f"{doc}\n\n{text}".strip(), entries(face, part))
    pages["dgp_ppl"] = _page("Units and errors", "Import from ``dgp_ppl``.", root_entries())
    for old in folder.iterdir():
        if old.stem not in pages:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for its sources."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
