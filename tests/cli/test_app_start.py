"""`dgp_ppl_command`, where the command starts: Ctrl-C while it loads, and how it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "import os, signal, time\n"
INTERRUPTED = "os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"


def run(folder, *, init="", main="pass", ignored=False):
    """Run the command with a package of this code in place of `dgp_ppl`."""
    (folder / "dgp_ppl").mkdir()
    (folder / "dgp_ppl" / "__init__.py").write_text(PACKAGE + init)
    (folder / "dgp_ppl" / "cli.py").write_text(
        f"import atexit, os, signal, sys\ndef main():\n    {main}\n"
    )
    code = "import sys; sys.path[:0] = sys.argv[1:3]; import dgp_ppl_command as c; c.main()"
    if ignored:
        code = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {code}"
    return subprocess.run(
        [sys.executable, "-c", code, str(folder), str(ROOT)],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip


def test_an_interruption_while_loading_is_one_line(tmp_path):
    found = run(tmp_path, init=INTERRUPTED)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "dgp-ppl: interrupted\n")


def test_an_interruption_is_no_error_of_an_import(tmp_path):
    """Imports of compiled modules turn `KeyboardInterrupt` into `ImportError`."""
    guarded = f"try:\n    {INTERRUPTED}except BaseException:\n    raise ImportError\n"
    found = run(tmp_path, init=guarded)
    assert (found.returncode, found.stderr) == (130, "dgp-ppl: interrupted\n")


def test_an_interrupted_command_does_not_crash_at_its_end(tmp_path):
    found = run(tmp_path, main="atexit.register(os.abort); print('line'); sys.exit(130)")
    assert (found.returncode, found.stdout) == (130, "line\n")


@pytest.mark.parametrize("code", [0, 2])
def test_other_ends_are_orderly(code, tmp_path):
    found = run(tmp_path, main=f"atexit.register(print, 'ended'); sys.exit({code})")
    assert (found.returncode, found.stdout) == (code, "ended\n")


@pytest.mark.parametrize("ignored", [False, True])
def test_the_command_has_the_handler_that_it_was_started_with(ignored, tmp_path):
    found = run(tmp_path, main="print(signal.getsignal(signal.SIGINT))", ignored=ignored)
    handler = signal.SIG_IGN if ignored else signal.default_int_handler
    assert found.stdout == f"{handler}\n"
