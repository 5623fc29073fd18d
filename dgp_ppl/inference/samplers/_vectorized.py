"""Any NumPyro MCMC kernel as a kernel of several chains in one program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import random
from jax.core import Tracer
from jaxtyping import Array
from numpyro.infer import HMC
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import nested_attrgetter

from dgp_ppl._partition import Call
from dgp_ppl.inference.samplers._kernel import ModelKernel

_SOME_WARMUP = 100


class VectorizedKernel:
    """A kernel of C chains. Arrays of its state have a leading axis of size C.

    `SGHMC`, each `ModelKernel`, NumPyro's HMC and NUTS, and ensemble samplers, whose C is even,
    keep all chains in one state. Any other kernel runs a single chain, as under NumPyro's
    ``chain_method="sequential"``: its chains begin one by one, and its step is mapped over them.
    """

    def __init__(self, kernel: MCMCKernel, num_chains: int) -> None:
        # A copy, because a kernel keeps what a run compiled.
        self.kernel, self.num_chains = copy.copy(kernel), num_chains
        self.ensemble = kernel.is_ensemble_kernel
        self.batched = self.ensemble or isinstance(kernel, HMC | ModelKernel)
        if self.ensemble and num_chains % 2:
            raise ValueError(
                f"run_mcmc: num_chains is {num_chains}, wanted an even number: each half of "
                f"{type(kernel).__name__}'s chains is moved by the other; try twice the number of "
                "latent values"
            )

    def anew(self) -> VectorizedKernel:
        return VectorizedKernel(self.kernel, self.num_chains)

    def init(
        self, key: Array, num_warmup: int, init_params: Any, call: Call, start: Any = None
    ) -> Any:
        """Return the first state of all chains; or `start`, if it is one of kernel and model."""
        sizes = {n: jnp.shape(a)[:1] for n, a in _leaves(init_params).items()}
        if wrong := {n: size for n, size in sizes.items() if size != (self.num_chains,)}:
            raise ValueError(
                f"run_mcmc: init_params has leading sizes {wrong}, wanted {self.num_chains}: a "
                "value for each chain"
            )
        keys = random.split(key, self.num_chains)

        def one(key: Array, values: Any, num_warmup: int) -> Any:
            return self.kernel.init(key, num_warmup, values, call.args, call.kwargs)

        def first(num_warmup: int) -> Any:
            if self.batched:
                state = one(keys, init_params, num_warmup)
                return jax.tree.map(jnp.asarray, state)  # the state of ESS has Python's numbers
            chains = range(self.num_chains)
            values = [jax.tree.map(lambda a: jnp.asarray(a)[i], init_params) for i in chains]  # noqa: B023
            states = [one(k, v, num_warmup) for k, v in zip(keys, values, strict=True)]
            return jax.tree.map(lambda *a: jnp.stack(a), *states)

        if start is None:
            return first(num_warmup)
        # NumPyro's kernels set up their sampling in `init`, so it must run. Of our kernels only the
        # shapes are needed, which warm-up does not change; some refuse to have none.
        runs = not isinstance(self.kernel, ModelKernel)
        wanted = first(num_warmup) if runs else jax.eval_shape(lambda: first(_SOME_WARMUP))
        check_start(start, wanted)
        return start

    def sample(self, state: Any, call: Call) -> Any:
        if self.batched:
            return self.kernel.sample(state, *call)
        return jax.vmap(lambda state: self.kernel.sample(state, *call))(state)

    def fields(self, state: Any, names: Sequence[str]) -> list[Any]:
        """Return fields of a state by name, each with a leading axis of C, or raise ValueError."""
        found = []
        for name in names:
            try:
                value = nested_attrgetter(name)(state)
            except (AttributeError, LookupError, TypeError):
                known = getattr(state, "_fields", None) or tuple(vars(state))
                raise ValueError(
                    f"run_mcmc: extra_fields has {name!r}, wanted a tuple of fields of the "
                    f"kernel's state: {list(known)}, or nested fields, such as "
                    "'adapt_state.step_size' of NUTS"
                ) from None
            if self.ensemble and name != self.kernel.sample_field:  # it has one value for all
                value = jax.tree.map(
                    lambda a: jnp.broadcast_to(a, (self.num_chains, *jnp.shape(a))), value
                )
            found.append(value)
        return found

    def diagnostics(self, state: Any) -> str:
        one = state if self.ensemble else jax.tree.map(lambda a: a[0], state)
        return self.kernel.get_diagnostics_str(one)


def plain_settings(value: Any) -> Any:
    """Return a kernel's attributes, and those of kernels in it, by name."""
    value = vars(value) if isinstance(value, MCMCKernel) else value
    if isinstance(value, dict):
        named = ((str(name), plain_settings(a)) for name, a in value.items())
        return sorted(named, key=lambda item: item[0])
    if isinstance(value, list | tuple):
        return [plain_settings(a) for a in value]
    return type(value) if isinstance(value, Tracer) else value


def _leaves(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): a for path, a in jax.tree_util.tree_leaves_with_path(tree)}


def check_start(start: Any, wanted: Any) -> None:
    """Raise unless both states have the same fields, shapes and types."""
    given, expected = ({n: _kind(a) for n, a in _leaves(s).items()} for s in (start, wanted))
    for name in expected | given:
        got, kind = given.get(name, "missing"), expected.get(name, "no such field")
        if got != kind:
            raise ValueError(
                f"run_mcmc: start{name} is {got}, wanted {kind}: a state of this kernel and model "
                "with num_chains chains, the `Chains.state` of an earlier run of them"
            )


def _kind(a: Any) -> str:
    """Describe an array; random keys of the old and of the new style are of one kind."""
    if not hasattr(a, "dtype"):
        return type(a).__name__
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        return f"key of shape {a.shape}"
    return (
        f"key of shape {a.shape[:-1]}" if a.dtype == jnp.uint32 else f"{a.dtype} of shape {a.shape}"
    )
