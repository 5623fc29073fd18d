"""A folder with the state and draws of a long run, from which a killed run resumes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import warnings
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jaxtyping import Array

from dgp_ppl._checks import check_count
from dgp_ppl._errors import DataError
from dgp_ppl._files import DAMAGE, check_path, replacing
from dgp_ppl.inference.runs._identity import Identity, digest, raw

try:
    import fcntl
except ImportError:  # Windows, where only this process's own runs are kept apart
    fcntl = None

_LATEST, _LOCK = "latest.json", "lock"
_ARRAYS = ("draws-*.npz", "state-*.npz")
_DRAFTS = tuple(f"{n}.*-*.part" for n in (*_ARRAYS, _LATEST))
_locked: dict[tuple[int, int, int], object] = {}  # folders in use, by process, device and inode


class RunFolder:
    """The files of a run: its draws in parts, and the state after the last of its `steps`.

    ``latest.json`` names the valid parts. It is written last, and never half, so files that a
    killed run left unfinished are ignored. As a context, the folder is locked until its end; a
    `DataError` says if another run uses it, or it cannot be written. Set `identity` before `read`.
    """

    identity: Identity

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.parts, self.steps = Path(path), 0, 0
        self._record: dict[str, Any] = {}  # what `latest.json` has besides the numbers of parts
        self._read_only: OSError | None = None
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        is_new = not os.path.exists(self.path / _LATEST)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if is_new and set(self.path.iterdir()) - set(self._files(*_ARRAYS, *_DRAFTS, _LOCK)):
                raise DataError(f"{self.path} is not empty and holds no run; take another folder")
            self._lock()
        except OSError as error:
            if is_new:
                raise self._unwritten(error) from error
            self._read_only = error
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _files(self, *patterns: str) -> list[Path]:
        return [file for pattern in patterns for file in self.path.glob(pattern)]

    def _lock(self) -> None:
        """Lock the folder; the system unlocks it if this process is killed."""
        about, token = self.path.stat(), object()
        folder = os.getpid(), about.st_dev, about.st_ino  # a fork's child holds no lock
        with contextlib.ExitStack() as stack:
            # A file is locked for a process: the runs in its threads are told apart by this dict.
            is_free = _locked.setdefault(folder, token) is token
            if is_free:
                stack.callback(_locked.pop, folder)
                file = stack.enter_context((self.path / _LOCK).open("a"))
                try:
                    if fcntl is not None:
                        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:  # some file systems have no locks
                    is_free = error.errno not in (errno.EAGAIN, errno.EACCES)
            if not is_free:
                raise DataError(
                    f"{self.path} is in use by another run; wait for its end, or take another "
                    "folder"
                )
            for draft in self._files(*_DRAFTS):  # of killed runs
                draft.unlink()
            self._exit = stack.pop_all()

    def read(self, state: Any, total: int) -> tuple[int, list[list[np.ndarray]], Any]:
        """Return the steps done, the draws so far, and the state to continue from.

        An empty folder returns the initial `state`. If steps are left of the `total`, a checkpoint
        is written, so that what cannot be written is found before the first step.
        """
        self.steps, draws, state = self._read(state)
        if self.steps < total:
            if self._read_only is not None:
                raise self._unwritten(self._read_only) from self._read_only
            self.write(self.steps, state, [])
        return self.steps, draws, state

    def _read(self, state: Any) -> tuple[int, list[list[np.ndarray]], Any]:
        latest, own = self.path / _LATEST, self.identity
        record: dict[str, Any] = {"about": own.settings, "versions": own.versions}
        if not latest.exists():
            record |= {"program": digest(own.program()), "numbers": own.numbers()}
            record |= {"start": own.start, "sketch": own.sketch}
            self._record = {"run": _checksum(record), **record}
            return 0, [], state
        try:
            found = json.loads(latest.read_text())
            if found.pop("checksum", None) != _checksum(found):
                raise ValueError("its checksum differs or, of an old version, is missing")
            names = "run", "about", "versions", "program", "numbers"
            self._record = {n: found[n] for n in names}
            steps, self.parts = (found[n] for n in ("steps", "parts"))
            check_count(_LATEST, "steps", steps, 0)
            check_count(_LATEST, "parts", self.parts)
        except DAMAGE as error:
            raise _damaged(latest, error) from error
        settings, versions = found["about"], found["versions"]
        changed = {n: v for n, v in own.versions.items() if versions.get(n) != v}
        if "start" not in found:
            raise DataError(
                f"{self.path} is a run of an earlier version of dgp_ppl, which does not say how it "
                "began: finish it with that version, or take another folder"
            )
        self._record |= {n: found[n] for n in ("start", "sketch")}
        is_like = _same(found["sketch"], own.sketch) if changed else found["start"] == own.start
        differing = [n for n, value in own.settings.items() if settings.get(n) != value]
        differing += [] if is_like else ["start"]
        if not differing:
            record["program"] = digest(own.program())
            if changed:
                record["numbers"] = own.numbers()
                if not _within(found["numbers"], record["numbers"]):
                    differing = ["losses or gradients"]
            elif found["program"] != record["program"]:
                differing = ["program (model, guide, kernel, objective, optimizer or an option)"]
        if differing:
            raise DataError(
                f"{self.path} holds another run: different {', '.join(differing)}; take another "
                "folder, or remove this one"
            )
        if changed:
            was = ", ".join(f"{n} {versions.get(n)}, now {v}" for n, v in changed.items())
            warnings.warn(
                f"{self.path} was begun with {was}; the run goes on, and differs from an "
                "uninterrupted one by rounding errors or more",
                stacklevel=5,
            )
        self._record |= record
        kept = [self._load(self.path / f"draws-{i}.npz") for i in range(self.parts)]
        kept = [k for k in kept if k]
        if len({len(k) for k in kept}) > 1:
            raise _damaged(self.path, "its parts have different numbers of columns")
        leaves, treedef = jax.tree.flatten(state)
        path = self.path / f"state-{self.parts}.npz"
        saved, wanted = self._load(path), [raw(a) for a in leaves]
        if (shapes := [a.shape for a in saved]) != [a.shape for a in wanted]:
            raise _damaged(path, f"{len(shapes)} arrays, wanted {len(wanted)} of this run's shapes")
        state = treedef.unflatten([_like(a, b) for a, b in zip(saved, leaves, strict=True)])
        return steps, kept, state

    def write(self, steps: int, state: Any, draws: list[list[np.ndarray]]) -> None:
        """Append a part of draws, and replace the state."""
        columns = [np.concatenate(c) for c in zip(*draws, strict=True)]
        leaves = [np.asarray(raw(a)) for a in jax.tree.leaves(state)]
        names = [f"draws-{self.parts}.npz", f"state-{self.parts + 1}.npz"]
        record = self._record | {"parts": self.parts + 1, "steps": steps}
        try:
            for name, arrays in zip(names, (columns, leaves), strict=True):
                with replacing(self.path / name) as draft, draft.open("wb") as file:
                    np.savez(file, *arrays, run=self._record["run"], name=name)
            with replacing(self.path / _LATEST) as draft:
                draft.write_text(json.dumps(record | {"checksum": _checksum(record)}, indent=1))
        except DataError as error:  # of `replacing`, which names one file
            for name in names:
                (self.path / name).unlink(missing_ok=True)
            raise self._unwritten(error.__cause__) from error
        self.parts, self.steps = self.parts + 1, steps
        (self.path / f"state-{self.parts - 1}.npz").unlink(missing_ok=True)

    def _unwritten(self, error: BaseException | None) -> DataError:
        why = getattr(error, "strerror", None) or error
        kept = f"it keeps the first {self.steps} steps" if self.parts else "nothing has been run"
        return DataError(
            f"{self.path} cannot be written: {why}; {kept}. Make room there or change its "
            "permissions, and make the same call again; or take another folder"
        )

    def _load(self, path: Path) -> list[np.ndarray]:
        try:
            with path.open("rb") as opened, np.load(opened) as file:
                if (str(file["run"]), str(file["name"])) != (self._record["run"], path.name):
                    raise ValueError("it is a file of another run, or another part of this run")
                return [file[n] for n in file.files if n.startswith("arr_")]
        except DAMAGE as error:
            raise _damaged(path, error) from error


def folder_of(
    caller: str, path: str | os.PathLike[str] | None, kind: type[RunFolder] = RunFolder
) -> contextlib.AbstractContextManager[RunFolder | None]:
    """Return the folder of a run, to be opened; None stays None."""
    if path is None:
        return contextlib.nullcontext()
    check_path(caller, path, "checkpoint", "the path of a folder, or None")
    return kind(path)


def _checksum(record: Any) -> str:
    return hashlib.sha256(json.dumps(record).encode()).hexdigest()


def _within(then: Any, now: Any) -> bool:
    """Return whether numbers are the same, as far as both allow."""
    (a, allowed), (b, too) = (np.asarray(pair, float) for pair in (then, now))
    return a.shape == b.shape and np.allclose(a, b, 0, allowed + too, equal_nan=True)


def _damaged(path: Path, error: object) -> DataError:
    return DataError(f"{path} cannot be read ({error}); the run's folder is damaged: remove it")


def _same(a: Any, b: list[float]) -> bool:
    """Return whether sketches are equal but for rounding errors."""
    return isinstance(a, list) and len(a) == len(b) and np.allclose(a, b, 1e-3, 0, equal_nan=True)


def _like(saved: np.ndarray, leaf: Any) -> Array:
    """Return the saved array with the leaf's type."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return random.wrap_key_data(jnp.asarray(saved), impl=random.key_impl(leaf))
    if getattr(leaf, "weak_type", False) and not saved.shape:  # else it would be traced again
        return jnp.asarray(saved.item())
    return jnp.asarray(saved, leaf.dtype)
