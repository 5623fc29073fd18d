"""Data sets by name or from a file, their splits, and what there is.

Three kinds can be had without a network: those that come with scikit-learn, two generated ones,
and files (.csv, .parquet, .npz). A folder of .npz files named by the environment variable
DGP_PPL_DATA adds their names: `uci/energy` is the file `uci/energy.npz` in it. `openml:NAME` is
fetched from openml.org.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgp_ppl._errors import DataError
from dgp_ppl.datasets._csv import read_csv
from dgp_ppl.datasets._npz import DEFAULT_SPLITS, peek_npz, read_npz
from dgp_ppl.datasets._openml import PREFIX, fetch
from dgp_ppl.datasets._parquet import read_parquet
from dgp_ppl.datasets._table import Table, named, quoted, shown, suggestion

_VARIABLE = "DGP_PPL_DATA"
_SUFFIXES = (".csv", ".npz", ".parquet")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set, checked: finite, within float32's range, of three rows or more.

    Attributes:
        name: the name it was asked for by, or the file's name without its ending.
        x: inputs, float64 [N, D], in the units of the source.
        y: targets [N]: float64 in the units of the source for regression, else the classes
            0 ... C-1, int64.
        task: "regression", "binary" or "multiclass".
        test_index: row numbers of each published split's test rows; None if there are none.
        x_names: names of the D inputs.
        y_name: name of the target.
        source: where it comes from, one line.
        shared_unit: whether all inputs are in one unit, as pixels are: `compare` gives them one
            location and scale.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    task: str
    test_index: tuple[np.ndarray, ...] | None
    x_names: tuple[str, ...]
    y_name: str
    source: str
    shared_unit: bool = False


@dataclass(frozen=True)
class DatasetInfo:
    """What `names` says of a data set.

    Attributes:
        name: what `load` takes.
        rows: number of data points, N.
        columns: number of inputs, D.
        task: "regression", "binary" or "multiclass".
        source: where it comes from, one line.
    """

    name: str
    rows: int
    columns: int
    task: str
    source: str


_BUNDLED = {
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
    )
}
_Y_NAMES = {
    "diabetes": "disease_progression",
    "breast_cancer": "benign",
    "iris": "species",
    "wine": "cultivar",
    "digits": "digit",
}


def load(
    name_or_path: str | os.PathLike[str],
    *,
    target: str | None = None,
    split_key: str = DEFAULT_SPLITS,
) -> Dataset:
    """Loads a data set.

    What ends in .csv, .parquet or .npz, and every `Path`, is a file. Any other string is, in this
    order, a bundled name, one at OpenML (`openml:NAME`, `openml:NAME:VERSION` or `openml:ID`), or
    one in the folder DGP_PPL_DATA.

    - .csv (UTF-8, commas, a header) and .parquet: `target` is the column to predict, all others
      are inputs. A .parquet file's pandas index is no input.
    - .npz: `X` [N, D], `y` [N] or [N, 1], and optionally splits, `test_index` [splits, n], padded
      with -1, and `columns`, the names of the inputs.

    A file is regression, but for a target of whole numbers (in .npz also booleans) that takes the
    values 0 and 1 and no others: that is binary.

    `step` is 100 points with x uniform in [-1, 1], sorted, and y = [x > 0] plus noise of standard
    deviation 0.05. `heteroscedastic` is 200 points with x uniform in [-1, 1], sorted, and
    y = sin(2 pi x) plus noise whose standard deviation rises linearly from 0.05 to 0.5. Both are
    the same at every call. `diabetes` is in its original units.

    Args:
        name_or_path: a name, or a file.
        target: the column to predict; for files with columns, and for OpenML in place of the
            default target.
        split_key: the array of an .npz file with the splits.

    Returns:
        The data set.

    Raises:
        DataError: there is no such data set, or it cannot be used; one line that says why, and
            what to do.
    """
    text = os.fspath(name_or_path)
    if not isinstance(name_or_path, str) or text.lower().endswith(_SUFFIXES):
        path = Path(os.path.expanduser(text))
        return _load_file(path, path.stem, target, split_key)
    where = named(text)
    if text in _BUNDLED:
        _no_splits(where, split_key)
        data = _generated(text) if _BUNDLED[text].source.startswith("generated") else _toy(text)
        if target not in (None, data.y_name):
            raise DataError(
                f"{where}: no target {shown(target)}, its target is {data.y_name!r}; leave the "
                "target out"
            )
        return data
    if text.startswith(PREFIX):
        _no_splits(where, split_key)
        return _dataset(text, *fetch(text, target))
    folder = os.environ.get(_VARIABLE)
    if folder and text and os.path.isfile(os.path.join(folder, f"{text}.npz")):
        return _load_file(Path(folder, f"{text}.npz"), text, target, split_key)
    if os.path.exists(text):
        kind = "a folder" if os.path.isdir(text) else "a file of another kind"
        raise DataError(f"{where}: {kind}, wanted a .csv, .parquet or .npz file; name one")
    raise DataError(_unknown(text, folder))


def splits(data: Dataset, num_splits: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Training and test rows of each split.

    These are the data set's own splits where it has some. Else split `s` is a random permutation,
    seeded by `(seed, s)`, whose first nine tenths, rounded down, are to train on.

    Args:
        data: the data set.
        num_splits: how many splits; the first ones are taken.
        seed: seed of the random splits, at least 0; of no effect where the data set has its own.

    Returns:
        Pairs (train_index, test_index) of int64 row numbers; every row is in one of the two.

    Raises:
        DataError: more splits were asked for than the data set has of its own.
        ValueError: `num_splits` is below 1, or `seed` below 0.
    """
    if num_splits < 1:
        raise ValueError(f"num_splits: got {num_splits}, wanted at least 1")
    if seed < 0:
        raise ValueError(f"seed: got {seed}, wanted at least 0")
    rows = len(data.y)
    if data.test_index is None:
        chosen = [_random_test(rows, seed, split) for split in range(num_splits)]
    elif num_splits > len(data.test_index):
        raise DataError(
            f"{shown(data.name)}: {num_splits} splits were asked for, and it has "
            f"{len(data.test_index)}; ask for at most {len(data.test_index)}"
        )
    else:
        chosen = list(data.test_index[:num_splits])
    return [(np.setdiff1d(np.arange(rows), test), test) for test in chosen]


def names() -> list[DatasetInfo]:
    """All data sets that can be loaded by name without a network.

    These are the bundled ones, then the .npz files with `X` and `y` under the folder
    DGP_PPL_DATA, by name. Only the files' headers are read, and whole-number targets.

    Raises:
        DataError: DGP_PPL_DATA is set, and is not a folder.
    """
    result = list(_BUNDLED.values())
    folder = os.environ.get(_VARIABLE)
    if not folder:
        return result
    if not os.path.isdir(folder):
        raise DataError(
            f"{_VARIABLE}: {named(folder)} is not a folder; set it to a folder of .npz files, "
            "or unset it"
        )
    for name, path in sorted(_found(Path(folder)).items()):
        found = peek_npz(path)
        if found is not None and name not in _BUNDLED:
            result.append(DatasetInfo(name, *found, source=f"file {path}"))
    return result


def _found(folder: Path) -> dict[str, Path]:
    """The .npz files under a folder, by name."""
    return {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in folder.rglob("*.npz")
        if path.is_file()
    }


def _unknown(text: str, folder: str | None) -> str:
    """The message for a name that nothing goes by."""
    known = list(_BUNDLED)
    if folder and os.path.isdir(folder):
        known += sorted(_found(Path(folder)))
        there = f"{_VARIABLE} is {named(folder)}, which has no {shown(text + '.npz')}"
    elif folder:
        there = f"{_VARIABLE} is {named(folder)}, which is not a folder"
    else:
        there = f"{_VARIABLE} is not set"
    return (
        f"no data set {shown(text)}{suggestion(text, known)}; bundled are {quoted(_BUNDLED)}; "
        f"{there}: set it to a folder of .npz files, or give a .csv, .parquet or .npz file, or "
        "openml:NAME"
    )


def _random_test(rows: int, seed: int, split: int) -> np.ndarray:
    order = np.random.default_rng((seed, split)).permutation(rows)
    return np.sort(order[9 * rows // 10 :])


def _no_splits(where: str, split_key: str) -> None:
    if split_key != DEFAULT_SPLITS:
        raise DataError(
            f"{where}: no splits {shown(split_key)}, only .npz files have splits of their own; "
            "leave it out to split at random"
        )


def _load_file(path: Path, name: str, target: str | None, split_key: str) -> Dataset:
    where = named(path)
    if not os.path.exists(path):
        try:
            beside = os.listdir(path.parent)
        except (OSError, ValueError):
            beside = []
        hint = suggestion(path.name, [file for file in beside if file.endswith(_SUFFIXES)])
        raise DataError(f"{where}: no such file{hint}; check the path")
    if not os.path.isfile(path):
        raise DataError(f"{where}: not a file, wanted a .csv, .parquet or .npz file; name one")
    suffix = path.suffix.lower()
    if suffix == ".npz":
        if target not in (None, "y"):
            raise DataError(
                f"{where}: no target {shown(target)}, the target of an .npz file is its array "
                "'y'; leave the target out"
            )
        table = read_npz(path, split_key)
    elif suffix in _SUFFIXES:
        _no_splits(where, split_key)
        table = (read_csv if suffix == ".csv" else read_parquet)(path, target)
    else:
        raise DataError(
            f"{where}: ends in {shown(suffix)}, wanted .csv, .parquet or .npz; save it as one"
        )
    return _dataset(name, table, f"file {path}")


def _dataset(name: str, table: Table, source: str) -> Dataset:
    return Dataset(
        name=name,
        x=table.x,
        y=table.y,
        task=table.task,
        test_index=table.test_index,
        x_names=table.x_names,
        y_name=table.y_name,
        source=source,
        shared_unit=table.shared_unit,
    )


def _toy(name: str) -> Dataset:
    """A data set that comes with scikit-learn."""
    import sklearn.datasets

    loaders = {
        "diabetes": lambda: sklearn.datasets.load_diabetes(scaled=False),
        "breast_cancer": sklearn.datasets.load_breast_cancer,
        "iris": sklearn.datasets.load_iris,
        "wine": sklearn.datasets.load_wine,
        "digits": sklearn.datasets.load_digits,
    }
    bunch: Any = loaders[name]()
    info = _BUNDLED[name]
    return Dataset(
        name=name,
        x=np.asarray(bunch.data, dtype=np.float64),
        y=np.asarray(bunch.target, np.float64 if info.task == "regression" else np.int64),
        task=info.task,
        test_index=None,
        x_names=tuple(map(str, bunch.feature_names)),
        y_name=_Y_NAMES[name],
        source=info.source,
        shared_unit=name == "digits",
    )


def _generated(name: str) -> Dataset:
    info = _BUNDLED[name]
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(-1.0, 1.0, info.rows))
    noise = random.standard_normal(info.rows)
    if name == "step":
        y = (x > 0.0) + 0.05 * noise
    else:
        y = np.sin(2.0 * np.pi * x) + (0.05 + 0.225 * (x + 1.0)) * noise
    return Dataset(name, x[:, None], y, info.task, None, ("x",), "y", info.source)
