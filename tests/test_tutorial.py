"""The tutorial's page is rendered from its source, and the source runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
SOURCE, PAGE = DOCS / "tutorial.py", DOCS / "tutorial.md"
MOST_BYTES = 1_500_000  # of all pictures


def cells():
    """Yield for each cell of the percent format whether it is code, and its text."""
    _, *parts = re.split(r"^# %%(.*)\n", SOURCE.read_text(), flags=re.MULTILINE)
    for options, text in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in options:
            yield False, re.sub(r"^# ?", "", text, flags=re.MULTILINE).strip()
        else:
            yield True, text.strip()


def test_page_is_of_this_source():
    page = PAGE.read_text()
    code = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    assert code == [text for is_code, text in cells() if is_code], "run `make tutorial`"
    for text in (text for is_code, text in cells() if not is_code):
        assert text in page, "run `make tutorial`"


def test_pictures_are_there_and_small():
    linked = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE.read_text())
    assert sorted(linked) == sorted(f"tutorial/{p.name}" for p in (DOCS / "tutorial").iterdir())
    sizes = [(DOCS / name).stat().st_size for name in linked]
    assert min(sizes) > 1000
    assert sum(sizes) < MOST_BYTES


def test_page_says_nothing_of_the_machine_that_made_it():
    page = PAGE.read_text()
    for bad in ("\x1b", str(Path.home()), str(DOCS.parent), "site-packages", "Warning", " at 0x"):
        assert bad not in page, repr(bad)


@pytest.mark.slow
def test_source_runs(tmp_path):
    parts = str(Path(__file__).parent / "support" / "python311")  # `arviz` on Python 3.11
    path = [os.environ.get("PYTHONPATH", ""), *[parts] * (sys.version_info < (3, 12))]
    environment = os.environ | {"DGP_PPL_QUICK": "1", "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [sys.executable, SOURCE], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
