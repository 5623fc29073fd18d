"""NumPyro's MCMC kernels as kernels of several chains, all of them in one program."""

import copy
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import random
from jaxtyping import Array
from numpyro.infer import HMC
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import nested_attrgetter

from dgp_ppl.inference.samplers._sghmc import SGHMC

__all__ = ["VectorizedKernel"]


class VectorizedKernel:
    """A kernel of C chains: what it keeps of each leads with C.

    `SGHMC`, and NumPyro's HMC and NUTS, have all chains in their own state, and so have ensemble
    samplers, whose chains learn from each other. Any other kernel is one of a single chain, as
    NumPyro's ``chain_method="sequential"`` takes it: chains are begun one after the other, and
    then one step is made of all.

    Args:
        kernel: a NumPyro kernel. It stays as it is: a copy without compiled parts is run, as they
            are of the run that made them.
        num_chains: C.

    Raises:
        ValueError: if an ensemble sampler is to have an odd number of chains.
    """

    def __init__(self, kernel: MCMCKernel, num_chains: int) -> None:
        self.kernel, self.num_chains = copy.copy(kernel), num_chains
        self.ensemble = kernel.is_ensemble_kernel
        self.together = self.ensemble or isinstance(kernel, HMC | SGHMC)
        if self.ensemble and num_chains % 2:
            raise ValueError(
                f"run_mcmc: num_chains is {num_chains}, wanted an even number: each half of "
                f"{type(kernel).__name__}'s chains is moved by the other; try twice the number of "
                "latent values"
            )

    def init(
        self,
        key: Array,
        num_warmup: int,
        init_params: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        start: Any = None,
    ) -> Any:
        """The first state of all chains: `start` if it is given.

        Raises:
            ValueError: if `start` is no state of this kernel, model and number of chains, or
                `init_params` are not of so many chains.
        """
        leaves = jax.tree_util.tree_leaves_with_path(init_params)
        sizes = {jax.tree_util.keystr(path): jnp.shape(a)[:1] for path, a in leaves}
        if wrong := [n for n, size in sizes.items() if size != (self.num_chains,)]:
            raise ValueError(
                f"run_mcmc: init_params has {', '.join(wrong)} of leading sizes "
                f"{[sizes[n] for n in wrong]}, wanted {self.num_chains}: a value for each chain"
            )
        keys = random.split(key, self.num_chains)

        def first() -> Any:
            given: dict[str, Any] = {"model_args": args, "model_kwargs": kwargs}
            if self.together:
                return self.kernel.init(keys, num_warmup, init_params, **given)
            states = []
            for i, own in enumerate(keys):
                at = jax.tree.map(lambda a: jnp.asarray(a)[i], init_params)  # noqa: B023
                states.append(self.kernel.init(own, num_warmup, at, **given))
            return jax.tree.map(lambda *a: jnp.stack(a), *states)

        if start is None:
            return first()
        # NumPyro's kernels learn in `init` what they sample.
        learns = getattr(self.kernel, "needs_init", True)
        _check_start(start, first() if learns else jax.eval_shape(first))
        return start

    def sample(self, state: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One step of all chains."""
        if self.together:
            return self.kernel.sample(state, args, kwargs)
        return jax.vmap(lambda state: self.kernel.sample(state, args, kwargs))(state)

    def fields(self, state: Any, names: Sequence[str]) -> list[Any]:
        """Parts of a state by their names, each leading with C.

        Raises:
            ValueError: if the state has no such part.
        """
        found = []
        for name in names:
            try:
                value = nested_attrgetter(name)(state)
            except (AttributeError, LookupError, TypeError):
                known = getattr(state, "_fields", None) or tuple(vars(state))
                raise ValueError(
                    f"run_mcmc: extra_fields has {name!r}, wanted a tuple of fields of the "
                    f"kernel's state: {list(known)}, or parts of them, such as "
                    "'adapt_state.step_size' of NUTS"
                ) from None
            if self.ensemble and name != self.kernel.sample_field:  # which is of all chains
                value = jax.tree.map(
                    lambda a: jnp.broadcast_to(a, (self.num_chains, *jnp.shape(a))), value
                )
            found.append(value)
        return found

    def diagnostics(self, state: Any) -> str:
        """The kernel's, of the first chain."""
        one = state if self.ensemble else jax.tree.map(lambda a: a[0], state)
        return self.kernel.get_diagnostics_str(one)


def _check_start(start: Any, wanted: Any) -> None:
    """Whether a state is of the same model, kernel and number of chains as another."""
    given, own = (
        {jax.tree_util.keystr(path): _kind(a) for path, a in jax.tree_util.tree_leaves_with_path(s)}
        for s in (start, wanted)
    )
    for name, kind in own.items():
        if name not in given:
            raise ValueError(
                f"run_mcmc: start has no {name}, wanted a state of this kernel and model: the "
                "`Chains.state` of an earlier run of them"
            )
        if given[name] != kind:
            raise ValueError(
                f"run_mcmc: start{name} is {_words(given[name])}, wanted {_words(kind)}: a state "
                "of this kernel and model, of as many chains as num_chains; pass the `Chains.state`"
                " of an earlier run of them"
            )
    if more := [n for n in given if n not in own]:
        raise ValueError(
            f"run_mcmc: start has {more[0]}, which this kernel and model do not have; pass the "
            "`Chains.state` of an earlier run of them"
        )


def _kind(a: Any) -> tuple[tuple[int, ...], str]:
    """Shape and type; random keys may be of either sort."""
    if not hasattr(a, "dtype"):
        return (), type(a).__name__
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        return a.shape, "key"
    return (a.shape[:-1], "key") if a.dtype == jnp.uint32 else (a.shape, str(a.dtype))


def _words(kind: tuple[tuple[int, ...], str]) -> str:
    return f"{kind[1]} of shape {kind[0]}"
