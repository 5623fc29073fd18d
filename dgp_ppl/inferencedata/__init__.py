"""From a fit, chains or the prior to one ArviZ data tree."""

from dgp_ppl.inferencedata._convert import to_inferencedata
from dgp_ppl.inferencedata._draws import Draws
from dgp_ppl.inferencedata._log_likelihood import Pointwise
from dgp_ppl.inferencedata._sites import Sites

__all__ = ["Draws", "Pointwise", "Sites", "to_inferencedata"]
