"""Fits in a process of their own that is killed again and again."""

import json
import os
import random
import signal
import subprocess
import sys
import time

__all__ = ["kill_often"]


def kill_often(program, folder, times=20):
    """Run code that fits with a checkpoint in the folder ``sys.argv[1]``, and kill it.

    At random moments of its steps. Returns the number of runs that were killed, and not over.
    """
    moments = random.Random(0)
    latest = folder / "latest.json"
    steps = lambda: json.loads(latest.read_text())["steps"] if latest.exists() else 0  # noqa: E731
    kills = 0
    for _ in range(times):
        process = subprocess.Popen([sys.executable, "-c", program, str(folder)])
        before = steps()
        while process.poll() is None and steps() == before:
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.1))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    return kills
