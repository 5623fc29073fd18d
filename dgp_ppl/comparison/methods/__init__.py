"""The methods of `compare`. Importing this package registers them, in the order of the tables."""

from __future__ import annotations

from dgp_ppl.comparison.methods import _sparse as _sparse  # isort: skip
from dgp_ppl.comparison.methods import _guides as _guides  # isort: skip
from dgp_ppl.comparison.methods import _samplers as _samplers  # isort: skip
from dgp_ppl.comparison.methods import _baselines as _baselines  # isort: skip

__all__: list[str] = []  # the methods are in METHODS
