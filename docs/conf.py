"""Configuration of the documentation site: `make docs` builds it into docs/_build.

Links into other projects' objects need their inventories, ``NAME.inv``, in docs/_inventories or in
the folder that the environment variable DGP_PPL_INVENTORIES names. The site builds without them.
Fetch one with, for example,

    curl -o docs/_inventories/numpyro.inv https://num.pyro.ai/en/stable/objects.inv
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import dgp_ppl  # noqa: E402

project = "dgp_ppl"
author = "The dgp_ppl maintainers"
project_copyright = "2026, The dgp_ppl maintainers"
release = version = dgp_ppl.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "api_pages",
    "gallery_page",
    "mathml",
    "public_names",
]
exclude_patterns = ["_build", "_inventories", "_templates"]
default_role = "py:obj"
suppress_warnings = ["intersphinx.external"]

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autosummary_generate = False
maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the text has shapes and units; the types are long
napoleon_use_rtype = False
napoleon_custom_sections = [("Source", "notes_style"), ("Sources", "notes_style")]
python_use_unqualified_type_names = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

_SITES = {
    "arviz": "https://python.arviz.org/en/stable/",
    "equinox": "https://docs.kidger.site/equinox/",
    "jax": "https://docs.jax.dev/en/latest/",
    "numpy": "https://numpy.org/doc/stable/",
    "numpyro": "https://num.pyro.ai/en/stable/",
    "optax": "https://optax.readthedocs.io/en/latest/",
    "python": "https://docs.python.org/3/",
}
_inventories = Path(os.environ.get("DGP_PPL_INVENTORIES", HERE / "_inventories"))
intersphinx_mapping = {
    name: (url, str(_inventories / f"{name}.inv"))
    for name, url in _SITES.items()
    if (_inventories / f"{name}.inv").is_file()
}

html_theme = "furo"
html_title = f"dgp_ppl {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"
