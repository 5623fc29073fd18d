"""A folder with the state and draws of a long run, from which a killed run resumes."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import random
from jaxtyping import Array
from numpyro.infer.mcmc import MCMCKernel

from dgp_ppl._checks import check_count
from dgp_ppl._errors import DataError
from dgp_ppl._files import DAMAGE, replacing
from dgp_ppl._typing import Params

__all__ = ["RunFolder", "digest", "fit_identity", "optimizer_identity", "run_identity"]

_LATEST = "latest.json"
_PLAIN_TYPES = (bool, int, float, str, type(None))


class RunFolder:
    """The files of a run: its draws in parts, and the state after the last part.

    ``latest.json`` names the valid parts. It is written last, and never half, so files that a
    killed run left unfinished are ignored.

    Args:
        path: the folder, which is created if it does not exist.
        identity: plain values, by name, that distinguish this run from others.
    """

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, Any]) -> None:
        self.path, self.identity, self.parts = (path := Path(path)), identity, 0
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{path} cannot be made: {error.strerror}") from error

    def read(self, state: Any) -> tuple[int, list[list[np.ndarray]], Any]:
        """Return the steps done, the draws so far, and the state to continue from.

        An empty folder returns the initial `state`.
        """
        latest = self.path / _LATEST
        if not latest.exists():
            if any(self.path.iterdir()) and not (self.path / "draws-0.npz").exists():
                raise DataError(f"{self.path} is not empty and holds no run; take another folder")
            return 0, [], state
        try:
            found = json.loads(latest.read_text())
            identity, steps, self.parts = (found[n] for n in ("about", "steps", "parts"))
            check_count(_LATEST, "steps", steps)
            check_count(_LATEST, "parts", self.parts)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(latest, error) from error
        if differing := [
            n for n, value in self.identity.items() if not _same(identity.get(n), value)
        ]:
            raise DataError(
                f"{self.path} holds another run: its {', '.join(differing)} differ; take another "
                "folder, or remove this one"
            )
        kept = [_load(self.path / f"draws-{i}.npz") for i in range(self.parts)]
        kept = [k for k in kept if k]
        if len({len(k) for k in kept}) > 1:
            raise _damaged(self.path, "its parts have different numbers of columns")
        leaves, treedef = jax.tree.flatten(state)
        path = self.path / f"state-{self.parts}.npz"
        saved, wanted = _load(path), [_raw(a) for a in leaves]
        if (shapes := [a.shape for a in saved]) != [a.shape for a in wanted]:
            raise _damaged(path, f"{len(shapes)} arrays, wanted {len(wanted)} of this run's shapes")
        state = treedef.unflatten([_like(a, b) for a, b in zip(saved, leaves, strict=True)])
        return steps, kept, state

    def write(self, steps: int, state: Any, draws: list[list[np.ndarray]]) -> None:
        """Append a part of draws, and replace the state."""
        columns = [np.concatenate(c) for c in zip(*draws, strict=True)]
        np.savez(self.path / f"draws-{self.parts}.npz", *columns)
        leaves = [np.asarray(_raw(a)) for a in jax.tree.leaves(state)]
        np.savez(self.path / f"state-{self.parts + 1}.npz", *leaves)
        self.parts += 1
        record = {"about": self.identity, "parts": self.parts, "steps": steps}
        with replacing(self.path / _LATEST) as draft:
            draft.write_text(json.dumps(record, indent=1) + "\n")
        (self.path / f"state-{self.parts - 1}.npz").unlink(missing_ok=True)


def _load(path: Path) -> list[np.ndarray]:
    try:
        with path.open("rb") as opened, np.load(opened) as file:
            return [file[f"arr_{i}"] for i in range(len(file.files))]
    except DAMAGE as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: object) -> DataError:
    return DataError(f"{path} cannot be read ({error}); the run's folder is damaged: remove it")


def _same(a: Any, b: Any) -> bool:
    """Return whether values are equal; floats in lists may differ by a rounding error."""
    if isinstance(b, list) and b and isinstance(b[0], float):
        return isinstance(a, list) and len(a) == len(b) and np.allclose(a, b, 1e-3, equal_nan=True)
    return a == b


def _raw(leaf: Any) -> Any:
    """Return the numbers of a random key; other leaves are unchanged."""
    return random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _like(saved: np.ndarray, leaf: Any) -> Array:
    """Return the saved array with the leaf's type."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return random.wrap_key_data(jnp.asarray(saved), impl=random.key_impl(leaf))
    return jnp.asarray(saved, leaf.dtype)


def run_identity(kernel: Any, state: Any, arguments: Any, **others: Any) -> dict[str, Any]:
    """Return plain values that identify a sampler's run.

    Models are functions, which cannot be compared by value. A different model usually has a
    different energy at the initial state.
    """
    energy = getattr(state, "potential_energy", None)
    return {
        "kernel": type(kernel).__name__,
        "options": _options(kernel),
        **others,
        "arguments": digest(arguments),
        "energy": [] if energy is None else np.asarray(energy, np.float64).ravel().tolist(),
    }


def fit_identity(
    guide: Any, loss: Any, optimizer: Any, params: Params, first: float, arguments: Any,
    **others: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return plain values that identify a fit.

    The guide and the objective are known by their types and their effect on the first loss. The
    params are the ones that the optimiser moves.
    """
    given = isinstance(optimizer, optax.GradientTransformation)
    return {
        "guide": type(guide).__name__,
        "loss": type(loss).__name__,
        "optimizer": optimizer_identity(optimizer, params) if given else None,
        **others,
        "arguments": digest(arguments),
        "first_loss": [first],
    }


def _options(value: Any) -> Any:
    """Return the settings of a kernel, and of kernels inside it, as plain values."""
    if isinstance(value, _PLAIN_TYPES):
        return value
    if isinstance(value, list | tuple):
        return [_options(v) for v in value]
    if isinstance(value, np.ndarray | jax.Array):
        return digest(value)
    if isinstance(value, dict):
        return {str(n): _options(v) for n, v in value.items()}
    if not isinstance(value, MCMCKernel):
        return None
    settings = {n: _options(v) for n, v in vars(value).items()}
    return {n: v for n, v in settings.items() if v is not None}


def optimizer_identity(optimizer: Any, params: Params) -> str:
    """Return the structure of an optimiser's state, which tells kinds of optimisers apart.

    Optax's optimisers are functions, whose settings cannot be read. The state's counters and
    moments show what they are chained of, but not their learning rates.
    """
    leaves, treedef = jax.tree.flatten(jax.eval_shape(optimizer.init, params))
    return f"{treedef} of {[str(a) for a in leaves]}"


def digest(arguments: Any) -> str:
    """Return a hash of arguments: arrays by value, functions by name."""
    found = hashlib.sha256()
    leaves, treedef = jax.tree.flatten(arguments)
    found.update(str(treedef).encode())
    for leaf in leaves:
        if hasattr(leaf, "dtype"):
            array = np.asarray(_raw(leaf))
            found.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            name = getattr(leaf, "__qualname__", None)
            found.update((name or repr(leaf)).encode())
    return found.hexdigest()
