"""Data sets by name or from a file, and their splits."""

from dgp_ppl.datasets._dataset import Dataset, DatasetInfo, splits
from dgp_ppl.datasets._load import load, names
from dgp_ppl.datasets._npz import DEFAULT_SPLITS

__all__ = ["DEFAULT_SPLITS", "Dataset", "DatasetInfo", "load", "names", "splits"]
