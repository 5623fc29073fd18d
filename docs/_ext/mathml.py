"""Write formulas as MathML, which browsers render without a script or a network."""

import html
import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

_LOGGER = logging.getLogger(__name__)
_SIZES = re.compile(r"\\[bB]ig{1,2}[lrm]?(?![a-zA-Z])")  # MathML's fences size themselves


def _formula(node: Any, *, block: bool) -> str:
    source = _SIZES.sub("", node.astext()).strip()
    source = re.sub(r"\\(log|exp|det) (?=[\w\\])", r"\\\1\\,", source)  # log p, not logp
    try:
        return str(tex2mathml(source, as_block=block))
    except MathError as error:
        _LOGGER.warning("formula %r: %s", source, error, location=node)
        return f"<code>{html.escape(source)}</code>"


def inline(self: Any, node: Any) -> None:
    """A formula in a line of text."""
    self.body.append(_formula(node, block=False))
    raise nodes.SkipNode


def block(self: Any, node: Any) -> None:
    """A formula on lines of its own, in a box that scrolls on a narrow screen."""
    body = _formula(node, block=True)
    self.body.append(f'<div class="math-block">{body}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer, and make it the default."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
