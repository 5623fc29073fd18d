"""Write docs/gallery/*.md from examples/: the docstring, a picture and the code of each."""

import ast
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

TITLES = {
    "regression": "Regression on a table",
    "step_function": "A step: one layer and two",
    "likelihoods": "Seven likelihoods",
    "counts_and_priors": "Counts, and priors on hyperparameters",
    "every_posterior": "Every posterior of one model",
    "low_rank_guide": "A guide of your own",
    "more_models": "Skip connections, deep kernels, latent inputs",
    "svi_vs_mcmc": "SVI against MCMC",
    "calibration": "A simulator calibrated, with its discrepancy",
    "serve": "A web service",
    "scoring_bench": "A model of ScoringBench",
    "gallery": "A picture of every kind",
}

# The picture that stands for an example with several.
COVERS = {"gallery": "gallery-paths.png"}


def read(path: Path) -> tuple[str, str, str]:
    """An example's first line, the rest of its docstring, and its command."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    first, _, rest = text.partition("\n\n")
    command = re.search(r"^ *(python examples/.*)$", rest, re.MULTILINE)
    rest = re.sub(r"^ *python examples/.*\n?", "", rest, flags=re.MULTILINE)
    run = command[1] if command else f"python examples/{path.name}"
    return " ".join(first.split()), rest.strip(), run


def page(path: Path, pictures: list[Path]) -> str:
    """The page of an example."""
    first, rest, command = read(path)
    shown = "\n\n".join(
        f"![{p.stem.replace('-', ', ').replace('_', ' ')}](../images/gallery/{p.name})"
        for p in pictures
    )
    code = f"```{{literalinclude}} ../../examples/{path.name}\n:language: python\n```"
    title = f"# {TITLES.get(path.stem, path.stem)}"
    return "\n\n".join([title, first, rest, f"```sh\n{command}\n```", shown, "## Code", code])


def write(app: Sphinx) -> None:
    """Write a page for each example, and the index with a picture of each."""
    source = Path(app.srcdir)
    folder = source / "gallery"
    folder.mkdir(exist_ok=True)
    found = {p.stem: p for p in (source.parent / "examples").glob("*.py")}
    names = [*(n for n in TITLES if n in found), *sorted(found.keys() - TITLES.keys())]
    cards, pages = [], {}
    for name in names:
        pictures = sorted((source / "images" / "gallery").glob(f"{name}*.png"))
        pages[name] = page(found[name], pictures)
        cards.append(f"## [{TITLES.get(name, name)}]({name}.md)\n\n{read(found[name])[0]}")
        if pictures:
            alt = TITLES.get(name, name)
            cover = COVERS.get(name, pictures[0].name)
            cards[-1] += f"\n\n[![{alt}](../images/gallery/{cover})]({name}.md)"
    tree = "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```"
    intro = (
        "# Gallery\n\nEach example is a program of at most 120 lines in the folder `examples`. "
        "`docs/scripts/gallery_pictures.py` draws the pictures."
    )
    pages["index"] = "\n\n".join([intro, tree, *cards])
    for old in folder.iterdir():
        if old.stem not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text() != text + "\n":
            path.write_text(text + "\n")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for its sources."""
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
