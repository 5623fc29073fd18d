"""BibTeX entries of the papers behind what a program uses."""

from __future__ import annotations

import inspect
import re
from importlib.resources import files
from typing import Any


def cite(*methods: Any) -> str:
    """Return the BibTeX entries of the papers that the docstrings of some methods name.

    >>> import dgp_ppl as dgp
    >>> print(dgp.cite(dgp.GlobalInducing))
    @inproceedings{ober2021global,
      title = {Global Inducing Point Variational Posteriors for ...},
      author = {Ober, Sebastian and Aitchison, Laurence},
      booktitle = {International Conference on Machine Learning},
      year = {2021}
    }

    Args:
        methods: guides, samplers, objectives, models, or functions such as `fit_mcem`: the object,
            or its class.

    Raises:
        ValueError: if the docstring of a method names no paper.
    """
    text = files("dgp_ppl").joinpath("references.bib").read_text("utf-8").strip()
    papers = {}  # each entry, and how docstrings name it: the first author, then the year
    for entry in text.split("\n\n"):
        (author,), (year,) = (
            re.findall(rf"{n} = {{(\w[^,}}]*)", entry) for n in ("author", "year")
        )
        papers[entry] = re.compile(rf"\b{author}\b[^.;]{{0,60}}?(et al\. )?\(?{year}")
    found = []
    for method in methods:
        named = method if inspect.isclass(method) or inspect.isroutine(method) else type(method)
        doc = " ".join((inspect.getdoc(named) or "").split())
        own = [entry for entry, name in papers.items() if name.search(doc)]
        if not own:
            raise ValueError(
                f"cite: the docstring of {getattr(named, '__name__', named)!r} names no paper of "
                "dgp_ppl/references.bib, wanted a guide, a sampler, an objective or a model of "
                "dgp_ppl"
            )
        found += [entry for entry in own if entry not in found]
    return "\n\n".join(found)
