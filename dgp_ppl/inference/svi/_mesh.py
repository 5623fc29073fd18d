"""A fit whose rows are divided among devices, of one process or of several.

JAX's partitioner does the work: the data arrays are divided, the params are not, and `minibatch`
divides the rows that it draws. What depends on rows then stays on their device, up to the sums over
rows in the gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.experimental import multihost_utils
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpyro.infer.svi import SVIState

from dgp_ppl._checks import check_kind
from dgp_ppl._errors import DataError
from dgp_ppl._partition import CallArrays
from dgp_ppl.core._minibatch import rows_on
from dgp_ppl.inference.runs._blocks import StepProgram
from dgp_ppl.inference.runs._checkpoint import RunFolder
from dgp_ppl.inference.runs._identity import ROUNDINGS, digest
from dgp_ppl.inference.svi._loop import TrainingLoop

# What an error of this process itself starts with; others mean that another one was lost.
_OWN_ERRORS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT")


class MeshLoop(TrainingLoop):
    """A training loop on the devices of a mesh. Its states are on one device between calls."""

    def __init__(
        self, loop: TrainingLoop, mesh: Mesh, num_data: int, by_row: tuple[bool, ...]
    ) -> None:
        super().__init__(loop.partition, loop.svi)
        self.mesh, self.num_data, self.by_row = mesh, num_data, by_row
        self._whole = NamedSharding(mesh, PartitionSpec())
        self._steps = StepProgram(self.run_chunk, out_shardings=self._whole)

    def _map(self, function: Callable[[Any, bool], Any], data: CallArrays) -> CallArrays:
        leaves, treedef = jax.tree.flatten(data)
        return treedef.unflatten(map(function, leaves, self.by_row))

    def place(self, data: CallArrays) -> CallArrays:
        """Return the arrays on the devices: rows divided, after padding, other arrays whole."""
        by_rows = NamedSharding(self.mesh, PartitionSpec(self.mesh.axis_names))
        missing = -self.num_data % self.mesh.size

        def put(array: Any, is_by_row: bool) -> jax.Array:
            if not is_by_row:
                return _put(array, self._whole)
            return _put(np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1)), by_rows)

        return self._map(put, data)

    def advance(self, state: SVIState, data: CallArrays, num: int) -> tuple[SVIState, np.ndarray]:
        """Run `num` <= 200 steps on all devices; `data` come from `place`."""
        try:
            state, values = super().advance(self._everywhere(state), data, num)
        except jax.errors.JaxRuntimeError as error:
            if not self.mesh.is_multi_process or str(error).startswith(_OWN_ERRORS):
                raise
            raise RuntimeError(
                f"fit: steps on the {jax.process_count()} processes of the mesh failed, because "
                "one of them ended or cannot be reached. Start all of them again: with a "
                f"checkpoint, the fit goes on. JAX says: {str(error).splitlines()[0]}"
            ) from error
        return jax.tree.map(lambda a: a.addressable_data(0), state), values

    def trace(self, state: SVIState, data: CallArrays) -> ClosedJaxpr:
        return super().trace(self._everywhere(state), data)

    def _everywhere(self, state: SVIState) -> SVIState:
        return jax.tree.map(lambda a: _put(a, self._whole), state)

    def run_chunk(
        self, state: SVIState, num: Any, first: Any, data: CallArrays
    ) -> tuple[SVIState, jax.Array]:
        """Run steps; a program that can be traced."""
        data = self._map(lambda a, by_row: a[: self.num_data] if by_row else a, data)
        with rows_on(self.mesh):
            return super().run_chunk(state, num, first, data)


class SharedFolder(RunFolder):
    """The folder of a run of several processes, which all read and of which the first writes."""

    def _lock(self) -> None:
        if jax.process_index() == 0:
            super()._lock()

    def _read(self, state: Any) -> tuple[int, list[list[np.ndarray]], Any]:
        # All processes compute them together, also those that see no folder.
        results = {rounding: self.identity.results(rounding) for rounding in ROUNDINGS}
        self.identity.results = results.__getitem__
        found = super()._read(state)
        if _differ(np.asarray(found[0])):
            raise DataError(
                f"{self.path} holds different runs for different processes; take a folder that "
                "all of them can read, or remove it everywhere"
            )
        return found

    def write(self, steps: int, state: Any, draws: list[list[np.ndarray]]) -> None:
        if jax.process_index() == 0:
            super().write(steps, state, draws)


def checked_mesh(caller: str, mesh: Mesh | Literal["auto"] | None) -> Mesh | None:
    """Return a mesh of the same devices with one axis that JAX's partitioner handles, or None."""
    if mesh is None:
        return None
    if isinstance(mesh, str) and mesh == "auto":
        return Mesh(np.asarray(jax.local_devices()), ("rows",))
    wanted = "a jax.sharding.Mesh, 'auto' or None; see jax.make_mesh"
    check_kind(caller, "mesh", mesh, Mesh, wanted)
    owners = {d.process_index for d in mesh.devices.flat}
    if owners not in ({jax.process_index()}, set(range(jax.process_count()))):
        raise ValueError(
            f"{caller}: mesh has devices of the processes {sorted(owners)}, and this is process "
            f"{jax.process_index()} of {jax.process_count()}, wanted devices of this process alone "
            "or of all processes"
        )
    return Mesh(mesh.devices.ravel(), ("rows",))


def divided_loop(
    caller: str, loop: TrainingLoop, mesh: Mesh, states: Any, data: CallArrays, num_data: int
) -> tuple[TrainingLoop, CallArrays]:
    """Return the loop on the devices of a mesh, and the data placed on them."""
    by_row = tuple(jnp.shape(a)[:1] == (num_data,) for a in jax.tree.leaves(data))
    if not any(by_row):
        raise ValueError(
            f"{caller}: mesh is given, and no argument of the model has {num_data} rows, the size "
            "of its data plate, wanted arrays whose rows can be divided among the devices"
        )
    if mesh.is_multi_process and _differ(np.frombuffer(digest((states, data)).encode(), np.uint8)):
        raise DataError(
            f"{caller}: the processes of the mesh have different arguments, wanted the same key "
            "and the same arrays, with all rows, in each; a process keeps its part of the rows"
        )
    divided = _mesh_loop(loop, mesh, num_data, by_row)
    return divided, divided.place(data)


def _put(array: Any, sharding: NamedSharding) -> jax.Array:
    """Place an array that each process has; `jax.device_put` refuses devices of other processes."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        data = _put(random.key_data(array), sharding)
        return random.wrap_key_data(data, impl=random.key_impl(array))
    host = np.asarray(array)
    return jax.make_array_from_callback(host.shape, sharding, lambda at: host[at])


_mesh_loop = lru_cache(maxsize=32)(MeshLoop)


def _differ(value: np.ndarray) -> bool:
    """Return whether the processes have different values of an array."""
    found = np.asarray(multihost_utils.process_allgather(value))
    return bool((found.reshape(-1, *value.shape) != value).any())
