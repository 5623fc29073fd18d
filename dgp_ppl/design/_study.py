"""A study: which runs of a simulator were made, and which come next."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from numbers import Real
from typing import Any, Self

import numpy as np
from jax import random

from dgp_ppl._checks import as_array, check_choice, check_count, check_flags, check_key, check_kind
from dgp_ppl._errors import DataError, one_line
from dgp_ppl._files import DAMAGE, check_path
from dgp_ppl._typing import PRNGKey
from dgp_ppl.comparison import METHODS, Fitted, Task
from dgp_ppl.design._choose import Question
from dgp_ppl.design._criteria import CRITERIA, OF_DRAWS
from dgp_ppl.design._record import Best, Record
from dgp_ppl.design._space import Row, Space
from dgp_ppl.design._surrogate import Emulator
from dgp_ppl.prediction import Prediction

_EACH, _GROWTH = 100, 1.05  # refit at each row up to so many, then when they have grown so much
_OPTIONS = ("criterion", "maximise", "initial", "level", "outputs", "constraints")
_OF_SEVERAL = ("variance", "integrated_variance", "vigf")  # outputs

Method = Callable[[Task], Fitted]


class Study:
    """Asks for runs of a simulator, is told their results, and asks for the next.

    The first runs fill the space, as a Latin hypercube. Then a surrogate is fitted to the results,
    and a criterion of its predictions chooses::

        study = Study(jax.random.key(0), {"a": (0.0, 1.0), "n": range(1, 9), "kind": ["x", "y"]})
        study.run(lambda x: simulate(**x), budget=40)
        study.best

    or, by hand, with results in any order:

    >>> import jax
    >>> from dgp_ppl.design import Study
    >>> study = Study(jax.random.key(0), {"a": (-1.0, 1.0)}, initial=4)
    >>> for x in study.ask(4):
    ...     study.tell(x, x["a"] ** 2)
    >>> sorted(study.best.x), len(study)
    (['a'], 4)

    A study that was loaded from a file asks the same questions as the one that was saved.

    Args:
        key: random key.
        bounds: of each input by name: an interval ``(0.0, 1.0)``; a ``range`` of integers; or a
            list, of numbers, which are ordered levels, or of texts, which are categories.
        surrogate: a method of `dgp_ppl.comparison.METHODS`, or a function from `Task` to `Fitted`,
            such as ``lambda task: METHODS["gp"](task.with_setting(kernel="matern52"))``.
        criterion: what makes a run worth its cost. To optimise: ``"log_ei"``, the logarithm of the
            expected improvement, or ``"thompson"``, the best input of a draw of the function. To
            learn all of it: ``"variance"``, of f; ``"integrated_variance"``, the mean variance that
            the run takes away; or ``"vigf"`` (see `global_improvement`). To find where it crosses
            a `level`: ``"contour"``, the entropy of whether f is above it, times the sd of f.
        maximise: whether the best run has the largest y.
        initial: number of runs of the first design; by default five for each input, and five.
        level: level of ``"contour"``, in the units of y.
        outputs: number P of outputs to learn, each by a surrogate of its own. The results of a run
            are then [y_1, ..., y_P], and a criterion that learns all of f is summed over outputs,
            each in units of its standard deviation. The best run has the best y_1.
        constraints: number K of constraints, which follow: [y, c_1, ..., c_K]. A run is feasible if
            no c is above 0. Each c has a surrogate of its own.

    Raises:
        DataError: if bounds are of none of these kinds.
        TypeError: if `key` is no random key, a number is not an integer, or `level` is missing.
        ValueError: if the surrogate or the criterion is not known, or the criterion has no level,
            no constraints, or one output.

    Source: Gardner et al. (2014) for constraints; see the criteria for theirs.
    """

    def __init__(
        self,
        key: PRNGKey,
        bounds: Mapping[str, Any],
        surrogate: str | Method = "gp",
        *,
        criterion: str = "log_ei",
        maximise: bool = False,
        initial: int | None = None,
        level: float | None = None,
        outputs: int = 1,
        constraints: int = 0,
    ) -> None:
        check_key("Study", key)
        check_flags("Study", maximise=maximise)
        check_choice("Study", "criterion", criterion, (*CRITERIA, *OF_DRAWS))
        check_count("Study", "outputs", outputs)
        check_count("Study", "constraints", constraints, 0)
        if not callable(surrogate):
            # `local` has no draws of functions, which batches are made of.
            known = tuple(method for method in METHODS if method != "local")
            check_choice("Study", "surrogate", surrogate, known)
        if criterion == "contour" or level is not None:
            check_kind("Study", "level", level, Real, "the level of 'contour', and of it alone")
        if criterion != "contour" and level is not None:
            raise ValueError(f"Study: criterion {criterion!r} has no level, wanted 'contour'")
        if level is not None and not math.isfinite(level):
            raise DataError(f"Study: level is {level}, wanted a finite number in the units of y")
        if outputs > 1 and criterion not in _OF_SEVERAL:
            raise ValueError(
                f"Study: outputs is {outputs}, and {criterion!r} is of one, wanted one of "
                f"{', '.join(_OF_SEVERAL)}"
            )
        if criterion == "thompson" and constraints:
            raise ValueError("Study: 'thompson' has no constraints, wanted criterion='log_ei'")
        self._space = Space(bounds)
        initial = 5 * (len(bounds) + 1) if initial is None else initial
        check_count("Study", "initial", initial, 2)
        self.key, self.surrogate, self.criterion = key, surrogate, criterion
        self.maximise, self.initial = bool(maximise), int(initial)
        self.level = None if level is None else float(level)  # JSON has no numbers of NumPy
        self.outputs, self.constraints = int(outputs), int(constraints)
        self._rows: list[tuple[Row, list[float]]] = []
        self._asked: list[Row] = []
        self._fits: tuple[int, list[Emulator]] = (0, [])

    def __len__(self) -> int:
        """Return the number of runs that were told, failed ones among them."""
        return len(self._rows)

    def __repr__(self) -> str:
        """Return what the study is about, and how far it is."""
        inputs = ", ".join(self._space.bounds)
        return f"Study of {inputs} by {self.criterion}: {len(self)} runs, {len(self._asked)} asked"

    @property
    def pending(self) -> list[dict[str, Any]]:
        """Inputs that were asked, and not yet told."""
        return [self._space.named(row) for row in self._asked]

    @property
    def x(self) -> list[dict[str, Any]]:
        """Inputs of the runs, in the order in which they were told."""
        return [self._space.named(row) for row, _ in self._rows]

    @property
    def y(self) -> np.ndarray:
        """Results of the runs, [N], or [N, P + K] of several; NaN of those that failed."""
        shape = self._shape()
        return np.array([y for _, y in self._rows], float).reshape(-1, *shape)

    @property
    def best(self) -> Best:
        """The best feasible run.

        Raises:
            DataError: if there is none.
        """
        best = self._best()
        if best is None:
            raise DataError(f"Study.best: none of {len(self)} runs is feasible; tell more of them")
        return Best(self._space.named(best[0]), best[1][0])

    def ask(self, n: int = 1) -> list[dict[str, Any]]:
        """Return the inputs of the next n runs. They count as under way until they are told.

        Args:
            n: their number. The later ones are chosen given what the earlier ones may find.

        Raises:
            DataError: if a finite space has no more inputs, or n is above 100 behind the first
                design.
        """
        check_count("Study.ask", "n", n)
        taken = [*(row for row, _ in self._rows), *self._asked]
        key, finite = random.fold_in(self.key, len(taken)), self._finite()
        even = []
        if len(taken) < self.initial:
            even += self._space.design(self.initial, self._seed())[len(taken) :]
        if len(finite) < 2:  # nothing to fit to
            even += self._space.fill(1024, self._seed())
        rows = [row for row in dict.fromkeys(even) if row not in taken][:n]
        if len(rows) < n:
            fitted, emulators = self._emulators()
            failed = [row for row, y in self._rows if not np.isfinite(y).all()]
            later = [row for row, y in self._known()[fitted:] if np.isfinite(y).all()]
            given = [*failed, *later, *self._asked, *rows]
            sign, best = -1.0 if self.maximise else 1.0, self._best()
            question = Question(
                self._space, self.criterion, sign, self.level, key, emulators[: self.outputs],
                emulators[self.outputs :], finite, best, given,
            )  # fmt: skip
            rows += question.answer(n - len(rows))
        self._asked += rows
        return [self._space.named(row) for row in rows]

    def tell(self, x: Any, y: Any) -> None:
        """Add the result of a run, or of several.

        Args:
            x: inputs by name, or a list of them. They need not have been asked.
            y: the result of each: a number, or [y_1, ..., y_P, c_1, ..., c_K]; NaN of what failed,
                or for all. The run is kept, and not asked again; surrogates learn from the rest.

        Raises:
            DataError: if an input is unknown, missing or out of bounds, or a result is infinite.
            TypeError: if a result is no number, such as None or a text.
        """
        kinds, wanted = Mapping | list | tuple, "inputs by name, or a list of them"
        check_kind("Study.tell", "x", x, kinds, wanted)
        y = as_array("Study.tell", "y", y)
        inputs, results = ([x], [y]) if isinstance(x, Mapping) else (x, np.atleast_1d(y))
        if len(inputs) != len(results):
            raise DataError(
                f"Study.tell: y has {len(results)} results and x {len(inputs)} inputs, wanted a "
                "result of each"
            )
        rows = [self._space.row("Study.tell", one) for one in inputs]
        found = [self._result(one) for one in results]
        for row, result in zip(rows, found, strict=True):
            if row in self._asked:
                self._asked.remove(row)
            self._rows.append((row, result))

    def run(
        self,
        simulator: Callable[[dict[str, Any]], Any],
        budget: int,
        *,
        batch: int = 1,
        executor: Executor | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> Best:
        """Make runs until the study has so many, and return the best.

        It begins with runs that were asked before and not told, as after a kill.

        Args:
            simulator: a function from inputs by name to the result that `tell` takes.
            budget: number of runs of the study, earlier ones included.
            batch: number of runs at once.
            executor: where they run, such as a `concurrent.futures.ThreadPoolExecutor`; by default
                here, one after another. A run that ends is told and replaced at once.
            path: a file to save the study to, before and after each run.

        An error of the simulator is raised once the other runs that began have ended.
        """
        check_count("Study.run", "budget", budget)
        check_count("Study.run", "batch", batch)
        waiting, running = self.pending, {}
        try:
            while len(self) < budget:
                room = min(batch, budget - len(self)) - len(running)
                new, waiting = waiting[:room], waiting[room:]
                taken = {*self._asked, *(row for row, _ in self._rows)}
                left = self._space.size - len(taken)
                if room and not new and (left or not running):
                    new = self.ask(int(min(room, left)) or 1)
                self._keep(path)
                if executor is None:
                    for x in new:
                        self.tell(x, simulator(dict(x)))
                        self._keep(path)
                    continue
                running |= {executor.submit(simulator, dict(x)): x for x in new}
                for future in wait(running, None, FIRST_COMPLETED).done:
                    self.tell(running.pop(future), future.result())
                self._keep(path)
        except BaseException as error:
            # The results of other runs are told; an interrupt does not wait for them.
            begun = [future for future in running if not future.cancel()]
            for future in wait(begun, None if isinstance(error, Exception) else 0).done:
                with contextlib.suppress(Exception):
                    self.tell(running[future], future.result())
            if running:
                self._keep(path)
            raise
        return self.best

    def predict(
        self, x: Sequence[Mapping[str, Any]], num_samples: int = 100, output: int = 0
    ) -> Prediction:
        """Return a surrogate's prediction of an output, at a list of inputs by name.

        Outputs count from 0, and constraints come after them.
        """
        check_count("Study.predict", "output", output, 0)
        if output >= (num := self.outputs + self.constraints):
            raise DataError(f"Study.predict: output is {output}, wanted one of the {num}, from 0")
        rows = [self._space.row("Study.predict", one) for one in x]
        emulator = self._emulators()[1][output]
        options: dict[str, Any] = {"num_samples": num_samples, "standardizer": emulator.scale}
        return emulator.fitted.predict(self.key, self._space.encode(rows), **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the study to a file of JSON, which is never half written.

        Raises:
            DataError: if the file cannot be written.
        """
        check_path("Study.save", path)
        name = self.surrogate if isinstance(self.surrogate, str) else None
        options = {n: getattr(self, n) for n in _OPTIONS}
        bounds = self._space.bounds
        Record(self.key, bounds, name, options, self._rows, self._asked).write(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], surrogate: Method | None = None) -> Self:
        """Read a study from a file.

        Args:
            path: the file.
            surrogate: the surrogate, if it was a function.

        Raises:
            DataError: if the file cannot be read, or is no study.
        """
        check_path("Study.load", path)
        try:
            kept = Record.read(path)
            method = surrogate or kept.surrogate
            study = cls(kept.key, kept.bounds, method or METHODS["gp"], **kept.options)
            space, shape = study._space, study._shape()
            for row, y in kept.runs:
                study.tell(space.named(row), np.reshape(y, shape))
            study._asked = [space.row("asked", space.named(row)) for row in kept.asked]
        except DAMAGE as error:
            raise DataError(
                f"Study.load: {path} is no study ({one_line(error)}), wanted a file of Study.save"
            ) from error
        if method is None:
            raise DataError(f"Study.load: the surrogate of {path} was a function; pass surrogate=")
        return study

    def _seed(self) -> int:
        return int(random.bits(self.key))

    def _keep(self, path: str | os.PathLike[str] | None) -> None:
        if path is not None:
            self.save(path)

    def _finite(self) -> list[tuple[Row, list[float]]]:
        return [run for run in self._rows if np.isfinite(run[1]).all()]

    def _known(self) -> list[tuple[Row, list[float]]]:
        return [run for run in self._rows if np.isfinite(run[1]).any()]

    def _best(self) -> tuple[Row, list[float]] | None:
        runs = self._finite()
        feasible = [(row, y) for row, y in runs if max(y[self.outputs :], default=0.0) <= 0]
        choose = max if self.maximise else min
        return choose(feasible, key=lambda run: run[1][0], default=None)

    def _emulators(self) -> tuple[int, list[Emulator]]:
        """Return the fits of all outputs, and the number of known runs that they have."""
        runs = self._known()
        num = len(runs)
        if num > _EACH:  # the same rows in a study that was loaded
            num = _EACH
            while (more := math.ceil(num * _GROWTH)) <= len(runs):
                num = more
        shape = num, self.outputs + self.constraints
        values = np.array([y for _, y in runs[:num]]).reshape(shape).T
        good = np.isfinite(values)
        if (least := int(good.sum(axis=1).min(initial=num))) < 2:
            raise DataError(f"Study: {least} runs did not fail, wanted at least 2 to fit")
        if self._fits[0] != num:
            surrogate: Any = self.surrogate
            method = METHODS[surrogate] if isinstance(surrogate, str) else surrogate
            codes = self._space.encode([row for row, _ in runs[:num]])
            keys = random.split(random.fold_in(random.fold_in(self.key, 0), num), len(values))
            each = zip(keys, values, good, strict=True)
            self._fits = num, [Emulator.fit(method, key, codes[g], y[g]) for key, y, g in each]
        return self._fits

    def _shape(self) -> tuple[int, ...]:
        """Return the shape of a result."""
        num = self.outputs + self.constraints
        return () if num == 1 else (num,)

    def _result(self, y: Any) -> list[float]:
        """Return the values of a run."""
        found = np.squeeze(np.asarray(y, float))  # [y] for y too
        if found.ndim == 0 and np.isnan(found):
            found = np.full(self._shape(), np.nan)
        if found.shape != self._shape() or np.isinf(found).any():
            parts = ("y", self.outputs), ("c", self.constraints)
            names = [f"{n}_1" + ", ..." * (k > 2) + f", {n}_{k}" * (k > 1) for n, k in parts if k]
            wanted = f"[{', '.join(names)}]" if self._shape() else "a number"
            raise DataError(
                f"Study.tell: y is {one_line(y)}, wanted {wanted}; NaN for a run that failed"
            )
        return found.ravel().tolist()
