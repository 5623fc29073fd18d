"""The inputs of the next runs, given fits of the runs so far."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import random

from dgp_ppl._errors import DataError
from dgp_ppl._typing import PRNGKey
from dgp_ppl.design._batch import greedy
from dgp_ppl.design._criteria import OF_DRAWS
from dgp_ppl.design._space import Row, Space
from dgp_ppl.design._surrogate import Emulator, joint_draws, search, search_draws

_POOL, _NEAR = 1024, 256  # inputs to score; of them, around the best run
# Joint draws, and their inputs; more of a criterion of draws. By dense algebra, ascents from the
# best of 480 would leave at most 0.7 % less variance than they do.
_DRAWS, _JOINT = 256, (256, 512)
_GIVEN = 32  # runs that the fits do not have, at most: the latest count
_PADDING = 64  # numbers of runs are multiples of it in compiled programs
_FAR = 1e3  # from all codes


@dataclasses.dataclass(frozen=True)
class Question:
    """What the next inputs depend on."""

    space: Space
    criterion: str
    sign: float  # -1 to maximise, else 1
    level: float | None  # of a contour
    key: PRNGKey
    outputs: Sequence[Emulator]  # fits of each y
    constraints: Sequence[Emulator]  # and of each constraint
    runs: Sequence[tuple[Row, Sequence[float]]]  # that did not fail
    best: tuple[Row, Sequence[float]] | None  # of the feasible ones
    given: Sequence[Row]  # inputs that the fits do not have: under way, failed, or new

    def answer(self, num: int) -> list[Row]:
        """Return the inputs of the next runs.

        Raises:
            DataError: if a finite space has no more, or they are too many at once.
        """
        key_search, key_draws, key_pool = random.split(self.key, 3)
        rows, about = self._pool(int(random.bits(key_pool))), self._about()
        of_draws, new = self.criterion in OF_DRAWS, self._new(rows)
        scores = weights = np.zeros(len(rows))
        if not of_draws or self.constraints:
            codes = self.space.encode(rows)
            scores, weights, better, start = search(
                self.criterion, self.outputs, self.constraints, key_search, codes, self.space.free,
                new, about,
            )  # fmt: skip
            rows = [*rows, *self.space.decode(better, [rows[i] for i in start])]
            new = self._new(rows)
        size = _JOINT[of_draws] - _GIVEN
        if (most := int(min(new.sum(), size // 2))) < num:
            why = "a batch has no more" if most == size // 2 else "all others have been asked"
            raise DataError(
                f"Study.ask: n is {num}, wanted at most {most}: {why}. "
                + ("Ask again once they are told." if most else "The study can end: see `best`.")
            )
        if self.criterion == "thompson":  # each by a draw of its own
            chosen, codes, free = [], self.space.encode(rows), self.space.free
            draws = search_draws(self.outputs[0], num, self.sign, key_draws, codes, free, new)
            for values, better, start in zip(*draws, strict=True):
                some = [*rows, *self.space.decode(better, [rows[i] for i in start])]
                left = self._new(some) & np.array([row not in chosen for row in some])
                chosen.append(some[int(np.argmax(np.where(left, values, -np.inf)))])
            return chosen
        scores, weights = (np.where(new, a, -np.inf) for a in (scores, weights))
        if num == 1 and not (self.given or of_draws):
            return [rows[int(np.argmax(scores))]]
        # Joint draws at the best, and at others that fill the space.
        order = np.argsort(-scores, kind="stable")
        rest = np.sort(order[size // 2 :])
        some = rest[np.linspace(0, len(rest) - 1, size - size // 2).astype(int)]
        places = np.concatenate([order[: size // 2], some])
        given = list(self.given)[-_GIVEN:]
        padding = [rows[0]] * (_GIVEN - len(given))
        chosen = [*given, *padding, *(rows[i] for i in places)]
        codes = self.space.encode(chosen)
        found = [joint_draws(e, _DRAWS, key_draws, codes) for e in self.outputs]
        draws, mean = ([self.sign * a for a in some] for some in zip(*found, strict=True))
        distance = np.square(codes[:, None] - about["runs"]).sum(axis=-1)
        about |= {"nearest": about["values"][:, distance.argmin(axis=1)]}
        weights = np.concatenate([np.full(_GIVEN, -np.inf), weights[places]])
        places = greedy(self.criterion, num, draws, mean, len(given), about, weights)
        return [chosen[i] for i in places]

    def _pool(self, seed: int) -> list[Row]:
        near = self.best is not None and self.criterion in ("log_ei", "thompson")
        near = near and self.space.size > _POOL
        rows = self.space.fill(_POOL - _NEAR * near, seed)
        if near and self.best is not None:
            rows += self.space.near(self.best[0], _NEAR, seed)
        return rows + rows[:1] * (_POOL - len(rows))

    def _new(self, rows: Sequence[Row]) -> np.ndarray:
        """Return which rows have not been asked, and did not come before."""
        taken, new = {*self.given, *(row for row, _ in self.runs)}, []
        for row in rows:
            new.append(row not in taken)
            taken.add(row)
        return np.array(new)

    def _about(self) -> dict[str, Any]:
        """Return what criteria know, in standard units; what is sought is low."""
        standard = lambda e, y: self.sign * e.standard(np.asarray(y, float))  # noqa: E731
        first, values = self.outputs[0], np.array([y for _, y in self.runs]).T
        rest = -len(self.runs) % _PADDING
        codes = self.space.encode([row for row, _ in self.runs])
        return {
            "sign": np.float64(self.sign),
            "best": np.float64(np.inf if self.best is None else standard(first, self.best[1][0])),
            "level": np.float64(np.nan if self.level is None else standard(first, self.level)),
            "limits": np.array([e.standard(0.0) for e in self.constraints]),
            "runs": np.pad(codes, [(0, rest), (0, 0)], constant_values=_FAR),
            "values": np.array(
                [np.pad(standard(e, values[i]), (0, rest)) for i, e in enumerate(self.outputs)]
            ),
        }
