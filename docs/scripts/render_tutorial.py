"""Render docs/tutorial.py, its output and its pictures: `python docs/scripts/render_tutorial.py`.

Writes docs/tutorial.md and docs/tutorial/*.png, and docs/_build/deep_gaussian_processes.ipynb, a
notebook for other projects' pages. A cell with a picture has a name, which is that of
its file, and an alternative text: `# %% name="..." alt="..."`.
"""

import base64
import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

PAGE = Path(__file__).parents[1] / "tutorial.py"
NOTEBOOK = PAGE.parent / "_build" / "deep_gaussian_processes.ipynb"
# The page has neither progress bars nor, on Python 3.11, ArviZ 1.x: its parts are there.
_ARVIZ = Path(__file__).parents[2] / "tests" / "support" / "python311"
_SETUP = f"""\
%matplotlib inline
import sys, warnings
if sys.version_info < (3, 12):
    sys.path.append({str(_ARVIZ)!r})
warnings.filterwarnings("ignore", "IProgress not found")
warnings.filterwarnings("ignore", "In a future version of xarray")
"""
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def executed(page: Path) -> Any:
    """The page as a notebook with the outputs of its cells.

    Raises:
        CellExecutionError: if a cell raises an error.
    """
    notebook = jupytext.read(page)
    notebook.cells.insert(0, new_code_cell(_SETUP))
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    del notebook.cells[0]
    return notebook


def written(cell: Any, folder: Path) -> str:
    """A cell as markdown; its picture goes to the folder.

    Raises:
        ValueError: if a cell warns, or has a picture without a name.
    """
    if cell.cell_type == "markdown":
        return cell.source
    parts, printed = [f"```python\n{cell.source}\n```"], ""
    for output in cell.outputs:
        data = output.get("data", {})
        if output.get("name") == "stderr":
            raise ValueError(f"a cell of the page warns:\n{output.text}\nIt is\n{cell.source}")
        if "image/png" in data:
            if not {"name", "alt"} <= set(cell.metadata):
                raise ValueError(f"a cell with a picture wants a name and alt:\n{cell.source}")
            path = folder / f"{cell.metadata['name']}.png"
            path.write_bytes(base64.b64decode(data["image/png"]))
            parts.append(f"![{cell.metadata['alt']}]({folder.name}/{path.name})")
        else:
            # What is printed comes in pieces, cut by chance.
            printed += output.get("text") or data.get("text/plain", "") + "\n"
    if printed:
        lines = [line.rstrip() for line in _ANSI.sub("", printed).strip("\n").splitlines()]
        parts.insert(1, "```text\n" + "\n".join(lines) + "\n```")
    return "\n\n".join(parts)


def main() -> None:
    notebook, folder = executed(PAGE), PAGE.with_suffix("")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.png"):
        old.unlink()
    text = "\n\n".join(written(cell, folder) for cell in notebook.cells)
    note = f"<!-- Made from {PAGE.name} by `make tutorial`; change that file. -->"
    PAGE.with_suffix(".md").write_text(f"{note}\n\n{text}\n")
    notebook.cells.insert(1, new_code_cell("!pip install -q dgp_ppl arviz"))
    NOTEBOOK.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
