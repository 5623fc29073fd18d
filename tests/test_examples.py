"""Every example runs and is short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(*args, cwd):
    environment = {k: v for k, v in os.environ.items() if k != "DGP_PPL_DATA"}
    done = subprocess.run(
        [sys.executable, *map(str, args)], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_runs(path, tmp_path):
    assert run(path, "--smoke", cwd=tmp_path).strip()
