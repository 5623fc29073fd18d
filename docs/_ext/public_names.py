"""Link every mention of a public name to its page.

Classes and functions live in private files (``dgp_ppl.inference.guides._mean_field.MeanField``).
Their page documents them at their public path (`dgp_ppl.MeanField`). This extension resolves
private paths, short names in docstrings, and inline code on Markdown pages to that page. It also
writes signatures as a reader would: `ArrayLike` for the union that it stands for.
"""

import contextlib
import inspect
import re
import sys
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext.autodoc._dynamic import _signatures
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.inspect import signature as signature_of, stringify_signature
from sphinx.util.nodes import make_refnode

import dgp_ppl

_CODE = re.compile(r"(?:dgp(?:_ppl)?\.)?([A-Za-z_][\w.]*)(?:\(\))?")


def _candidates(name: str) -> list[str]:
    """Public paths that a written name can mean, the likeliest first."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        return []
    name = re.sub(r"^dgp\.", "dgp_ppl.", name)
    parts = name.split(".")
    if any(p.startswith("_") for p in parts):
        parts = [p for p in parts if not p.startswith("_")]
    if parts[:1] == ["dgp_ppl"]:
        parts = parts[1:]
    # dgp_ppl.inference.guides.MeanField.median: dgp_ppl.MeanField.median is the path that is used.
    return [".".join(["dgp_ppl", *parts[i:]]) for i in range(len(parts))]


def find(env: Any, name: str) -> tuple[str, Any] | None:
    """The documented object that a name means: its path and its entry."""
    objects = env.domains.python_domain.objects
    for path in _candidates(name):
        if path in objects:
            return path, objects[path]
    ends = [p for p in objects if p.startswith("dgp_ppl.") and p.endswith(f".{name}")]
    ends = [p for p in ends if not objects[p].aliased]  # the private path of the same object
    # A short name that one room alone documents; a method's name alone is not enough.
    ends = [p for p in ends if objects[p].objtype not in ("method", "attribute", "property")]
    return (ends[0], objects[ends[0]]) if len(ends) == 1 else None


def resolve(app: Sphinx, env: Any, node: Any, content: Any) -> Any:
    """Answer Sphinx's question where a reference leads that it could not resolve."""
    if node.get("refdomain") != "py":
        return None
    found = find(env, node["reftarget"])
    if found is None:
        return None
    path, entry = found
    return make_refnode(app.builder, node["refdoc"], entry.docname, entry.node_id, content, path)


class LinkInlineCode(SphinxPostTransform):
    """Turn inline code on a page, `dgp.MeanField`, into a link if it is a public name."""

    default_priority = 5

    def run(self, **kwargs: Any) -> None:
        """Wrap each literal that names a public object in a reference."""
        if self.env.doc2path(self.env.docname).suffix != ".md":
            return
        for node in list(self.document.findall(nodes.literal)):
            inside = isinstance(node.parent, (nodes.reference, addnodes.pending_xref, nodes.title))
            match = _CODE.fullmatch(node.astext())
            if inside or match is None:
                continue
            name = match[1]
            if name not in dir(dgp_ppl) and "." not in name:
                continue
            found = find(self.env, f"dgp_ppl.{name}")
            if found is None or found[0] != f"dgp_ppl.{name}":
                continue
            path, entry = found
            link = make_refnode(
                self.app.builder,
                self.env.docname,
                entry.docname,
                entry.node_id,
                node.deepcopy(),
                path,
            )
            node.replace_self(link)


_BYTES = "complex | bytes | str"
_NUMPY = (
    "_Buffer | _SupportsArray[dtype[Any]] | _NestedSequence[_SupportsArray[dtype[Any]]] | "
    f"{_BYTES} | _NestedSequence[{_BYTES}]"
)
# What annotations become when Python expands their aliases, and the aliases.
_ALIASES = {
    _NUMPY: "ArrayLike",
    "jax.jaxlib._jax.Array": "Array",
    "jaxlib._jax.Array": "Array",
    "Array | ndarray | bool | number | bool | int | float | complex": "ArrayLike",
    "Key[Array, ''] | Array": "Key",
    "Callable[[str, int], Covariance]": "KernelMaker",
    "Callable[[Array], Distribution]": "Likelihood",
    "Callable[[...], Any]": "Callable",
    "Callable[..., Any]": "Callable",
}


def write_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, text: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Show a class's constructor rather than its `__new__`, and aliases by their names."""
    if what == "class" and re.fullmatch(
        r"\(\*args: [~\w.]*Any, \*\*kwargs: [~\w.]*Any\)", text or ""
    ):
        found = signature_of(obj.__init__, bound_method=True)
        text = stringify_signature(found, show_return_annotation=False, unqualified_typehints=True)
    return _with_aliases(text), _with_aliases(returns)


def _with_aliases(text: str | None) -> str | None:
    if text is None:
        return None
    # Short names, but for those with a public path: that tells means.Linear from kernels.Linear.
    text = re.sub(r"~(?!dgp_ppl\.[a-z]+\.[A-Z])[\w.]*?(\w+)(?![\w.])", r"\1", text)
    text = re.sub(r"<class '[\w.]*?(\w+)'>", r"\1", text.replace("<factory>", "{}"))
    for expanded, alias in _ALIASES.items():
        text = text.replace(expanded, alias)
    return re.sub(r", _\w+: .*?(?=, \w+: |\)$)", "", text)  # private fields of dataclasses


def _suppress_missing_defaults() -> None:
    """Let Sphinx read fewer defaults in a function's source than its signature has.

    `compare`, the estimators and the commands take the options of `Setting` into their signatures.
    """
    module: Any = _signatures
    read = module.update_default_value

    def update(obj: Any, bound_method: bool) -> None:
        with contextlib.suppress(IndexError):
            read(obj, bound_method)

    module.update_default_value = update


def skip_member(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> Any:
    """Leave out members that have no documentation of their own."""
    if name in ("support", "arg_constraints", "process_message"):  # NumPyro's, without our docs
        return True
    if name in ("set_predict_request", "set_score_request"):  # scikit-learn makes them
        return True
    text = inspect.getdoc(obj) or ""
    if text.startswith("Alias for field number"):
        return True
    return None


def plain(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Take ``|x|`` in a docstring as an absolute value, and document data by its comments."""
    if what == "data":
        lines[:] = _comment(name, obj)
    literal = None  # the indentation of the line that opened a literal block
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indent <= literal:
            literal = None
        if literal is None:
            pieces = re.split(r"(``.+?``|`[^`]+`)", line)
            pieces[::2] = [p.replace("|", r"\|") for p in pieces[::2]]
            lines[i] = "".join(pieces)
            if line.rstrip().endswith("::"):
                literal = indent


def _comment(name: str, value: Any) -> list[str]:
    """The ``#:`` comment or docstring of a constant, from the private file that defines it."""
    face, _, short = name.rpartition(".")
    for module in [m for n, m in sorted(sys.modules.items()) if n.startswith(face)]:
        if getattr(module, short, None) is value:
            found = ModuleAnalyzer.for_module(module.__name__).find_attr_docs()
            if ("", short) in found:
                return found["", short]
    return []


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the hooks."""
    _suppress_missing_defaults()
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-docstring", plain, priority=900)
    app.connect("autodoc-process-signature", write_signature)
    app.connect("autodoc-skip-member", skip_member)
    app.add_post_transform(LinkInlineCode)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
