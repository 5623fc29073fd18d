"""Call public functions in odd ways, and look for wrong numbers, hangs and foreign errors.

    python benchmarks/fuzz.py [--cases 2000] [--log FILE] [--again]

A case is a number: it fixes what is called, and how. Five of eight replace one or two arguments of
a call (`fuzz_functions.py`) by other values, or by the same ones in another form
(`fuzz_values.py`). Three of eight compare a program of random numbers with what is known of its
result (`fuzz_relations.py`): permuted rows, other units, weights and copies, SciPy's tails, fits
of odd data. Every fortieth starts threads, or kills a fit. Outcomes:

- same: the result is as known, or that of the plain call.
- result: of other values, which the library takes; warned: with a warning.
- refused: by the library, in one line.
- FAILED: another result, NaN without a warning, or an error that does not begin in the library.
- HANG: no end within five minutes, or the process died.

The log has one line for each case, after a line with the versions: number, function, change,
outcome, seconds, and what failed. The run can be stopped at any time, and goes on. Each batch of
500 cases has a process of its own.
"""

import argparse
import collections
import faulthandler
import functools
import json
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

BATCH, SECONDS = 500, 300


def run_case(number: int) -> tuple[str, str, str, str]:
    """Return what a case calls, what it changes, the outcome, and what failed."""
    import fuzz_relations as relations

    rng = np.random.default_rng([37, number])
    if number % 40 == 39:
        program = relations.kills if number % 160 == 159 else relations.threads
    elif number % 8 < 3:
        program = relations.RELATIONS[rng.integers(len(relations.RELATIONS))]
    else:
        function, change, call = odd_call(rng)
        return function, change, *judged(call)
    about: list[str] = []
    outcome, text = judged(lambda: (about.append(program(rng)), True)[1])
    if outcome == "refused":
        outcome, text = "FAILED", "the library refuses what it should take"
    return program.__name__, "".join(about)[:60], outcome, text


def odd_call(rng: Any) -> tuple[str, str, Callable[[], Any]]:
    """Return a function, the changes of one or two arguments, and the call.

    The call returns True if the result had to be the plain call's, and is.
    """
    from fuzz_functions import targets
    from fuzz_relations import same
    from fuzz_values import SCALARS, other_rows, same_rows, same_value

    function = list(targets())[rng.integers(len(targets()))]
    target = targets()[function]
    given, changes, is_same = plain(function), [], True
    for _ in range(1 + int(rng.random() < 0.15)):
        name = list(target.arguments)[rng.integers(len(target.arguments))]
        value, by_row = target.arguments[name], name in target.rows
        alike = same_rows(np.asarray(value)) if by_row else same_value(value)
        pool = {**other_rows(np.asarray(value)), **SCALARS} if by_row else SCALARS
        if alike and rng.random() < 0.4:
            pool = alike
        else:
            is_same = False
        what = list(pool)[rng.integers(len(pool))]
        is_same &= what != "float64 params"  # these have other draws and jitter
        given[name] = pool[what]
        changes.append(f"{name}: {what}")

    def call() -> Any:
        result = target.call(**given)
        if not is_same:
            return None if function.startswith("metrics.") else result  # NaN gives NaN there
        same("not the plain call's", result, expected(function))
        return True

    return function, ", ".join(changes), call


def plain(function: str) -> dict[str, Any]:
    """Return the arguments of the plain call."""
    from fuzz_functions import targets

    given = targets()[function].arguments
    return {n: a for n, a in given.items() if not (isinstance(a, str) and a == "leave out")}


@functools.cache
def expected(function: str) -> list[np.ndarray]:
    from fuzz_functions import targets
    from fuzz_problem import numbers

    return numbers(targets()[function].call(**plain(function)))


def judged(call: Callable[[], Any]) -> tuple[str, str]:
    """Run a case; returns its outcome, and what failed."""
    from fuzz_problem import numbers
    from fuzz_relations import FindingError

    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = call()
            found = [] if result is True else numbers(result)
        if result is True:
            return "same", ""
        if not said and any(np.isnan(a).any() for a in found if a.dtype.kind == "f"):
            return "FAILED", "NaN in the result, without a warning"
        return "warned" if said else "result", ""
    except FindingError as finding:
        return "FAILED", str(finding)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if "/dgp_ppl/" in f.filename]
        # The library raises its errors itself. Python's refusals of unknown keywords name the
        # argument too, scikit-learn's of its estimators' arguments are its contract, and functions
        # that the fuzz passes, such as likelihoods, fail by themselves.
        ours = bool(own) and frames[-1] is own[-1] and f"{own[-1].line}".startswith("raise")
        known = not isinstance(error, KeyError | AttributeError | IndexError | AssertionError)
        named = "unexpected keyword" in text or "required positional" in text
        last = [f for f in frames if re.search("/dgp_ppl/|/fuzz_", f.filename)][-1:]
        passed = bool(own and last) and "/fuzz_" in last[0].filename
        contract = passed or named or "/sklearn/" in frames[-1].filename
        if (ours and known and "\n" not in text) or contract:
            return "refused", ""
        under = f", under {own[-1].name}" if own else ""
        place = f" [{Path(frames[-1].filename).name}:{frames[-1].lineno}{under}]"
        return "FAILED", text.splitlines()[0][:200] + place


def run_batch(log: Path, numbers: list[int]) -> None:
    """Run cases and write their lines."""
    # Most time goes into compilation.
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    for number in numbers:
        # A hang in compiled code ends the process too.
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        begun = time.monotonic()
        function, change, outcome, text = run_case(number)
        faulthandler.cancel_dump_traceback_later()
        seconds = round(time.monotonic() - begun, 1)
        write(log, [number, function, change, outcome, seconds, *([text] if text else [])])
        if text:
            print(number, function, "|", change, "|", text, flush=True)


def write(log: Path, row: Any) -> None:
    with log.open("a") as file:
        file.write(json.dumps(row, separators=(",", ":")) + "\n")


def finished(log: Path) -> dict[int, list[Any]]:
    """Return the lines by number, without the first; a line cut short is removed."""
    text = log.read_text()
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        log.write_text(text)
    return {row[0]: row for row in map(json.loads, text.splitlines()[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--log", type=Path, default=Path("fuzz.jsonl"))
    parser.add_argument("--again", action="store_true", help="repeat what failed")
    parser.add_argument("--batch", type=int, nargs="+", help="run these cases in this process")
    given = parser.parse_args()
    if given.batch:
        return run_batch(given.log, given.batch)
    from dgp_ppl.comparison import versions

    if not given.log.exists():
        write(given.log, versions())
    if given.again:
        first, *rows = given.log.read_text().splitlines()
        kept = [row for row in rows if json.loads(row)[3] not in ("FAILED", "HANG")]
        again = json.loads(first) | {"again": {"failed": len(rows) - len(kept)} | versions()}
        given.log.write_text("\n".join([json.dumps(again), *kept, ""]))
    while left := [n for n in range(given.cases) if n not in finished(given.log)]:
        batch = [n for n in left if n // BATCH == left[0] // BATCH]
        command = [sys.executable, __file__, "--log", str(given.log), "--batch", *map(str, batch)]
        code = subprocess.run(command).returncode
        done = finished(given.log)
        if code and (stopped := [n for n in batch if n not in done]):
            write(given.log, [stopped[0], "?", "", "HANG", SECONDS, f"exit code {code}"])
    rows = finished(given.log).values()
    print(dict(collections.Counter(row[3] for row in rows)), "of", len(rows))


if __name__ == "__main__":
    main()
