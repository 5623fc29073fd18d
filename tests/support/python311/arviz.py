"""ArviZ 1.x as its three parts under one name, for Python 3.11, which has the parts alone."""

from arviz_base import *  # noqa: F403
from arviz_plots import *  # noqa: F403
from arviz_stats import *  # noqa: F403
