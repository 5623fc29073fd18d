"""Ready-made NumPyro model functions."""

from dgp_ppl.models.bnn import bnn as bnn
from dgp_ppl.models.deep_gp import deep_gp as deep_gp
from dgp_ppl.models.deep_gp import svgp as svgp
from dgp_ppl.models.diff_gp import diff_gp as diff_gp
from dgp_ppl.models.gplvm import gplvm as gplvm
from dgp_ppl.models.sgpr import optimal_inducing as optimal_inducing
from dgp_ppl.models.sgpr import sgpr as sgpr
