"""Write formulas as MathML, which browsers render without a script or a network."""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from docutils.utils.math.mathml_elements import MathElement
from sphinx.application import Sphinx


def _formula(source: str, *, block: bool) -> str:
    tree: str | MathElement = tex2mathml(source.strip(), as_block=block)
    return str(tree)


def inline(self: Any, node: Any) -> None:
    """A formula in a line of text."""
    self.body.append(_formula(node.astext(), block=False))
    raise nodes.SkipNode


def block(self: Any, node: Any) -> None:
    """A formula on lines of its own, in a box that scrolls on a narrow screen."""
    body = _formula(node.astext(), block=True)
    self.body.append(f'<div class="math-block">{body}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer, and make it the default."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
