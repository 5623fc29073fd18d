"""The checker of the types in signatures: see `addopts` in pyproject.toml."""

from __future__ import annotations

from typing import Any, Self

import beartype

# An int passes for a float, as for Pyright. `Self` is known in classes only, and jaxtyping's hook
# decorates functions.
checked = beartype.beartype(
    conf=beartype.BeartypeConf(
        is_pep484_tower=True, hint_overrides=beartype.FrozenDict({Self: Any})
    )
)
