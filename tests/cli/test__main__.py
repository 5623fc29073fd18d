"""Where the command starts: Ctrl-C while it loads, missing packages, and how it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
INTERRUPTED = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"


def start(folder, *, typer="", run="pass", ignored=False):
    """Start the command with this code instead of typer, and of what runs when it is loaded."""
    (folder / "typer.py").write_text(typer)
    code = "import dgp_ppl.cli.__main__ as c; c.main()"
    if not typer:
        code = f"import atexit, os, signal, sys; {code.replace('; ', '; c.load = lambda: run; ')}"
        code = f"def run(**_):\n    {run}\n{code}"
    if ignored:
        code = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{code}"
    path = f"{folder}{os.pathsep}{ROOT}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def test_an_interruption_while_loading_is_one_line(tmp_path):
    """Imports of compiled modules would turn `KeyboardInterrupt` into `ImportError`."""
    first, second = INTERRUPTED.splitlines()
    guarded = f"{first}\ntry:\n    {second}\nexcept BaseException:\n    raise ImportError\n"
    for code in (INTERRUPTED, guarded):
        found = start(tmp_path, typer=code)
        assert (found.returncode, found.stdout, found.stderr) == (
            130, "", "dgp-ppl: interrupted\n"
        )  # fmt: skip


def test_a_missing_package_is_named_with_its_extra(tmp_path):
    found = start(tmp_path, typer="raise ModuleNotFoundError(name='typer')")
    line = "dgp-ppl: typer is not installed; pip install 'dgp_ppl[cli]'\n"
    assert (found.returncode, found.stdout, found.stderr) == (2, "", line)


def test_a_warning_is_one_line(tmp_path):
    found = start(tmp_path, run="import warnings; warnings.warn('first\\n second')")
    assert (found.returncode, found.stderr) == (0, "dgp-ppl: warning: first second\n")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    found = start(tmp_path, run="open('no.csv')")
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == "dgp-ppl: no.csv: No such file or directory\n"


def test_a_standard_output_that_takes_no_text(tmp_path, monkeypatch):
    """A full disk is one line, when it is found and at the end; other alphabets are escaped."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    for flush in (True, False):
        full = "sys.stdout = os.fdopen(os.open('/dev/full', os.O_WRONLY), 'w')"
        found = start(tmp_path, run=f"{full}; print('line', flush={flush})")
        line = "dgp-ppl: standard output: No space left on device\n"
        assert (found.returncode, found.stdout, found.stderr) == (2, "", line)
    found = start(tmp_path, run="print('\u00fc')")
    assert (found.returncode, found.stdout, found.stderr) == (0, "\\xfc\n", "")


def test_an_interrupted_command_does_not_crash_at_its_end(tmp_path):
    found = start(tmp_path, run="atexit.register(os.abort); print('line'); sys.exit(130)")
    assert (found.returncode, found.stdout) == (130, "line\n")


def test_other_ends_are_orderly(tmp_path):
    """The command has the handler of Ctrl-C that it was started with."""
    for ignored, code in ((False, 0), (True, 2)):
        run = "atexit.register(print, 'ended'); print(signal.getsignal(signal.SIGINT)); "
        found = start(tmp_path, run=f"{run}sys.exit({code})", ignored=ignored)
        handler = signal.SIG_IGN if ignored else signal.default_int_handler
        assert (found.returncode, found.stdout) == (code, f"{handler}\nended\n")
