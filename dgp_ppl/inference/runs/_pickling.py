"""Results that can be pickled, also if they hold functions of other libraries."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar, Self


class Portable:
    """Base of frozen dataclasses that pickle without what cannot be pickled."""

    if_possible: ClassVar[tuple[str, ...]] = ()
    """Attributes that are None after loading if they could not be pickled, such as optimisers."""

    left_out: ClassVar[tuple[str, ...]] = ()
    """Attributes that are never pickled: dicts, empty after loading."""

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        for name in self.if_possible:
            try:
                pickle.dumps(state[name])
            except (pickle.PicklingError, AttributeError, TypeError):
                state[name] = None
        return state | {name: {} for name in self.left_out}

    def __copy__(self) -> Self:  # copies lose nothing
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other
