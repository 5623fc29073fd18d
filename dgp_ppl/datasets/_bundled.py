"""The data sets that need neither a file nor a network: scikit-learn's and generated ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgp_ppl.datasets._dataset import Dataset, DatasetInfo

BUNDLED = {
    info.name: info
    for info in (
        DatasetInfo("diabetes", 442, 10, "regression", "scikit-learn, Efron et al. 2004"),
        DatasetInfo("breast_cancer", 569, 30, "binary", "scikit-learn, Street et al. 1993"),
        DatasetInfo("iris", 150, 4, "multiclass", "scikit-learn, Fisher 1936"),
        DatasetInfo("wine", 178, 13, "multiclass", "scikit-learn, Forina et al. 1991"),
        DatasetInfo("digits", 1797, 64, "multiclass", "scikit-learn, Alpaydin and Kaynak 1998"),
        DatasetInfo("step", 100, 1, "regression", "generated, a step from 0 to 1 at x = 0"),
        DatasetInfo(
            "heteroscedastic", 200, 1, "regression", "generated, a sine whose noise grows with x"
        ),
        DatasetInfo(
            "robot_arm", 2000, 6, "regression",
            "generated, the distance of a six-joint arm's hand from a point",
        ),
    )
}  # fmt: skip
_TARGET_NAMES = {
    "diabetes": "disease_progression", "breast_cancer": "benign", "iris": "species",
    "wine": "cultivar", "digits": "digit",
}  # fmt: skip


def load_bundled(name: str) -> Dataset:
    info = BUNDLED[name]
    return _generated(info) if info.source.startswith("generated") else _from_sklearn(info)


def _from_sklearn(info: DatasetInfo) -> Dataset:
    import sklearn.datasets

    options: dict[str, Any] = {"scaled": False} if info.name == "diabetes" else {}
    bunch: Any = getattr(sklearn.datasets, f"load_{info.name}")(**options)
    return Dataset(
        name=info.name, x=np.asarray(bunch.data, dtype=np.float64),
        y=np.asarray(bunch.target, np.float64 if info.task == "regression" else np.int64),
        task=info.task, test_index=None, x_names=tuple(map(str, bunch.feature_names)),
        y_name=_TARGET_NAMES[info.name], source=info.source, shared_unit=info.name == "digits",
    )  # fmt: skip


def _generated(info: DatasetInfo) -> Dataset:
    random = np.random.default_rng(0)
    if info.name == "robot_arm":
        return _robot_arm(info, random)
    x = np.sort(random.uniform(-1.0, 1.0, info.rows))
    noise = random.standard_normal(info.rows)
    if info.name == "step":
        y = (x > 0.0) + 0.05 * noise
    else:
        y = np.sin(2.0 * np.pi * x) + (0.05 + 0.225 * (x + 1.0)) * noise
    return Dataset(info.name, x[:, None], y, info.task, None, ("x",), "y", info.source)


def _robot_arm(info: DatasetInfo, random: np.random.Generator) -> Dataset:
    """Simulate a planar arm, after the kin data sets of DELVE."""
    joints = info.columns
    angles = random.uniform(-1.5, 1.5, (info.rows, joints))
    directions = np.cumsum(angles, axis=1)
    lengths = np.linspace(1.0, 0.5, joints)
    lengths = lengths / lengths.sum()
    hand = np.stack([np.cos(directions) @ lengths, np.sin(directions) @ lengths], axis=1)
    distance = np.hypot(*(hand - np.array([0.3, 0.2])).T)
    y = distance + 0.05 * distance.std() * random.standard_normal(info.rows)
    names = tuple(f"joint {j + 1}" for j in range(joints))
    return Dataset(info.name, angles, y, info.task, None, names, "distance", info.source)
