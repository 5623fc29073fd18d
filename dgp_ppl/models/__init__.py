"""Ready-made NumPyro model functions. Each is also an example of how to write a model.

Every model takes inputs ``x`` and targets ``y``, and draws ``y`` if it is None.
"""

from __future__ import annotations

from dgp_ppl.models._bnn import bnn
from dgp_ppl.models._deep_gp import deep_gp, svgp
from dgp_ppl.models._diff_gp import diff_gp
from dgp_ppl.models._exact import exact
from dgp_ppl.models._gplvm import gplvm
from dgp_ppl.models._local import LocalProcess, local
from dgp_ppl.models._multi_fidelity import multi_fidelity
from dgp_ppl.models._sgpr import optimal_inducing, sgpr
from dgp_ppl.models._stack import KernelMaker

__all__ = [
    "KernelMaker", "LocalProcess", "bnn", "deep_gp", "diff_gp", "exact", "gplvm", "local",
    "multi_fidelity", "optimal_inducing", "sgpr", "svgp",
]  # fmt: skip
