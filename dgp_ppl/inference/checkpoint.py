"""A folder that keeps what a long run has done, so that it can be killed and gone on with."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array

from dgp_ppl._errors import DataError

__all__ = ["Folder", "identity"]

_LATEST = "latest.json"
_PLAIN = (bool, int, float, str, type(None))


class Folder:
    """A run's files: draws in parts, and the state after the last part.

    ``latest.json`` names them and is replaced last, whole: whatever else a killed run wrote is not
    looked at.

    Args:
        path: the folder, made if need be.
        about: what tells this run from others, by name: plain values.

    Raises:
        DataError: if the folder cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str], about: dict[str, Any]) -> None:
        self.path, self.about, self.parts = (path := Path(path)), about, 0
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{path} cannot be made: {error.strerror}") from error

    def read(self, state: Any) -> tuple[int, list[list[np.ndarray]], Any]:
        """Steps done, draws so far, and the state to go on from; those of a new run if empty.

        Raises:
            DataError: if the folder holds another run, or files that are not a run's.
        """
        latest = self.path / _LATEST
        if not latest.exists():
            if any(self.path.iterdir()) and not (self.path / "draws-0.npz").exists():
                raise DataError(f"{self.path} is not empty and holds no run; take another folder")
            return 0, [], state
        try:
            found = json.loads(latest.read_text())
            about, steps, self.parts = found["about"], int(found["steps"]), int(found["parts"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(latest, error) from error
        if differing := [n for n in self.about if not _alike(about.get(n), self.about[n])]:
            raise DataError(
                f"{self.path} holds another run: its {', '.join(differing)} differ; take another "
                "folder, or remove this one"
            )
        kept = [_load(self.path / f"draws-{i}.npz") for i in range(self.parts)]
        leaves, treedef = jax.tree.flatten(state)
        saved = _load(self.path / f"state-{self.parts}.npz")
        state = treedef.unflatten([_like(a, b) for a, b in zip(saved, leaves, strict=True)])
        return steps, [k for k in kept if k], state

    def write(self, steps: int, state: Any, draws: list[list[np.ndarray]]) -> None:
        """A part more."""
        columns = [np.concatenate(c) for c in zip(*draws, strict=True)]
        _save(self.path / f"draws-{self.parts}.npz", columns)
        leaves = [
            random.key_data(a) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else a
            for a in jax.tree.leaves(state)
        ]
        _save(self.path / f"state-{self.parts + 1}.npz", [np.asarray(a) for a in leaves])
        self.parts += 1
        record = {"about": self.about, "parts": self.parts, "steps": steps}
        draft = self.path / f"{_LATEST}.part"
        draft.write_text(json.dumps(record, indent=1) + "\n")
        draft.replace(self.path / _LATEST)
        (self.path / f"state-{self.parts - 1}.npz").unlink(missing_ok=True)


def _save(path: Path, arrays: list[np.ndarray]) -> None:
    np.savez(path, *arrays)


def _load(path: Path) -> list[np.ndarray]:
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            return [file[f"arr_{i}"] for i in range(len(file.files))]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} cannot be read ({error}); the run's folder is damaged: remove it")


def _alike(a: Any, b: Any) -> bool:
    """Equal; numbers but for how another processor may round."""
    if isinstance(b, list) and b and isinstance(b[0], float):
        return isinstance(a, list) and len(a) == len(b) and np.allclose(a, b, rtol=1e-3)
    return a == b


def _like(saved: np.ndarray, leaf: Any) -> Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return random.wrap_key_data(jnp.asarray(saved), impl=random.key_impl(leaf))
    return jnp.asarray(saved, leaf.dtype)


def identity(kernel: Any, state: Any, arguments: Any, **others: Any) -> dict[str, Any]:
    """What tells a sampler's run from others: its kernel, its arguments, and plain values.

    Functions have no value that could be compared; another model has another energy where the run
    starts.
    """
    energy = getattr(state, "potential_energy", None)
    return {
        "kernel": type(kernel).__name__,
        "options": {n: v for n, v in vars(kernel).items() if isinstance(v, _PLAIN)},
        **others,
        "arguments": _digest(arguments),
        "energy": [] if energy is None else np.asarray(energy, np.float64).ravel().tolist(),
    }


def _digest(arguments: Any) -> str:
    """A hash of arguments, arrays by value; functions by name."""
    digest = hashlib.sha256()
    leaves, treedef = jax.tree.flatten(arguments)
    digest.update(str(treedef).encode())
    for leaf in leaves:
        if hasattr(leaf, "dtype"):
            raw = random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
            array = np.asarray(raw)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            name = getattr(leaf, "__qualname__", None)
            digest.update((name or repr(leaf)).encode())
    return digest.hexdigest()
