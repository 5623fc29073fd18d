"""What the kernels of this room share: the checks of a model, first values, densities, chains."""

from __future__ import annotations

import abc
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import random
from jax.flatten_util import ravel_pytree
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.initialization import init_to_feasible, init_to_uniform
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import constrain_fn, find_valid_initial_params, potential_energy
from numpyro.primitives import Messenger
from numpyro.util import is_prng_key, not_jax_tracer

from dgp_ppl._checks import check_program, short_list
from dgp_ppl._partition import TRACING, Call, CallArrays, Partition, alone, compiled
from dgp_ppl._typing import Model, PRNGKey, Values
from dgp_ppl.core._minibatch import whole_plates
from dgp_ppl.inference.programs._handlers import check_whole
from dgp_ppl.inference.samplers._dynamics import Flat
from dgp_ppl.inference.samplers._potential import Potential


class ModelKernel(MCMCKernel, abc.ABC):
    """A kernel of one chain or of many, as many as there are random keys.

    The state holds all that the kernel learns, and `sample` reads the model's arguments. So another
    data set of the same shapes runs the same program, and a run goes on from a state alone.
    """

    _sample_fn = True  # NumPyro's MCMC looks for it, and then needs no `init` where it has a state
    # Whether the density may be an estimate from the rows of a minibatch, with auxiliary sites (the
    # unit noise of hidden layers) drawn for each. Without, auxiliary sites are latent, as for NUTS.
    estimates = False

    sample_field: Any = "z"

    def __init__(self, model: Model, init_strategy: Callable[..., Any]) -> None:
        check_program(type(self).__name__, "model", model)
        self._model, self.init_strategy, self.potential = model, init_strategy, Potential(model)

    @property
    def model(self) -> Model:
        return self._model

    def init(
        self, rng_key: PRNGKey, num_warmup: int, init_params: Values | None,
        model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None,
    ) -> Any:  # fmt: skip
        """Return the first state; `init_params` has unconstrained values of some or all sites."""
        call, given = Call(model_args, model_kwargs or {}), init_params or {}
        empty = self._empty_values(call)
        chains = () if is_prng_key(rng_key) else (len(rng_key),)
        shapes = {n: (*chains, *a.shape) for n, a in empty.items()}
        wrong = {n: jnp.shape(a) for n, a in given.items() if shapes.get(n) != jnp.shape(a)}
        if wrong:
            raise ValueError(
                f"{type(self).__name__}: init_params has {wrong}, wanted unconstrained values of "
                f"latent sites of these shapes (with several chains a leading axis for each): "
                f"{shapes}"
            )
        given = {n: jnp.asarray(a, empty[n].dtype) for n, a in given.items()}
        return self._first_states(rng_key, num_warmup, given, empty, call)

    @abc.abstractmethod
    def _first_states(
        self, key: PRNGKey, num_warmup: int, given: Values, empty: Values, call: Call
    ) -> Any:
        """Return the first states; `empty` has zeros in the shapes of one chain's values."""

    def _run(self, name: str, call: Call, *args: Any, static: tuple[Any, ...] = ()) -> Any:
        """Run a method of (*static, call, *args) as a program, which compiles once."""
        partition, data = Partition.split(self.model, call)
        return _method(self)(name, static, partition, data, *args)

    def _empty_values(self, call: Call) -> Values:
        """Return zeros in the shapes of unconstrained values, after checks of the model's sites."""
        program = whole_plates(self.model) if self.estimates else self.model
        names: list[str] = []  # in the model's order, in which NumPyro draws first values

        def run(key: PRNGKey) -> Values:
            seeded = handlers.substitute(handlers.seed(program, key), substitute_fn=_without_draws)
            trace = handlers.trace(seeded).get_trace(*call.args, **call.kwargs)
            latent = {
                n: s
                for n, s in trace.items()
                if s["type"] == "sample"
                and not s["is_observed"]
                and not (self.estimates and s["infer"].get("is_auxiliary"))
            }
            _check_sites(type(self).__name__, trace, latent)
            names.extend(latent)
            return {n: biject_to(s["fn"].support).inv(s["value"]) for n, s in latent.items()}

        with alone():
            shapes = jax.eval_shape(run, random.PRNGKey(0))
        return {n: jnp.zeros(shapes[n].shape, shapes[n].dtype) for n in names}

    def _check_finite(self, sound: Array, keys: PRNGKey, values: Values, call: Call) -> None:
        """Raise unless the start of each chain is `sound`. The keys are the energy's."""
        if not not_jax_tracer(sound) or sound.all():
            return
        which = ""
        if sound.ndim:
            chains = jnp.flatnonzero(~sound).tolist()
            which = f" of chains {chains}"
            keys, values = jax.tree.map(lambda a: a[chains[0]], (keys, values))

        def energy(values: Values) -> Any:
            found = self.potential(keys, values, call)
            return found.value, found

        (_, found), slopes = compiled(jax.value_and_grad(energy, has_aux=True))(values)
        densities = {n: float(p) for n, p in found.log_densities.items() if not jnp.isfinite(p)}
        steep = [n for n, a in slopes.items() if not jnp.isfinite(a).all()]
        raise ValueError(
            f"{type(self).__name__}: the log density or its gradient is not finite at the "
            f"start{which}: the log densities {densities}; the gradients of {steep}. Look "
            "for NaN in the data, or start elsewhere: init_params (unconstrained values), or "
            "another init_strategy"
        )


@lru_cache(maxsize=32)
def _method(kernel: ModelKernel) -> compiled:
    """Return the program of a kernel's methods."""

    def run(name: str, static: Any, partition: Partition, data: CallArrays, *args: Any) -> Any:
        return getattr(kernel, name)(*static, partition.join(data), *args)

    return compiled(run, static_argnums=(0, 1, 2))


def each_of(keys: PRNGKey) -> Callable[..., Any]:
    """Return what turns a function of one chain into a function of as many as there are keys."""
    return (lambda function: function) if is_prng_key(keys) else jax.vmap


def _without_draws(site: Any) -> Any:
    """Return a value for a site that has no draws."""
    improper = site["type"] == "sample" and isinstance(site["fn"], dist.ImproperUniform)
    return init_to_feasible(site) if improper else None


def refuse_discrete(caller: str, latent: dict[str, Any]) -> None:
    """Raise if a latent site is discrete."""
    if found := [n for n, s in latent.items() if s["fn"].support.is_discrete]:
        raise ValueError(
            f"{caller}: the latent sites {short_list(found)} are discrete, and have no gradient; "
            "sum them out in the model, or sample them by numpyro's DiscreteHMCGibbs"
        )


def _check_sites(caller: str, trace: dict[str, Any], latent: dict[str, Any]) -> None:
    """Raise if a model has no latent site, one that no gradient moves, or a subsampled plate."""
    if not latent:
        raise ValueError(f"{caller}: the model has no latent sites to sample")
    refuse_discrete(caller, latent)
    if found := [n for n, s in latent.items() if isinstance(s["fn"], dist.Delta)]:
        raise ValueError(
            f"{caller}: the latent sites {short_list(found)} have a delta distribution, which has "
            "no density; use numpyro.deterministic"
        )
    if found := [n for n, s in latent.items() if _is_subsampled_in_scan(s)]:
        raise ValueError(
            f"{caller}: the latent sites {short_list(found)} are in a plate with a subsample_size "
            "within numpyro's scan, which does not report its rows; leave out that plate's "
            "subsample_size"
        )
    why = ", as this kernel needs the exact density; leave out batch_size (subsample_size), or use "
    check_whole(caller, trace, f"{why}SGHMC, which draws minibatches")
    for name, site in latent.items():
        try:
            biject_to(site["fn"].support)
        except NotImplementedError:
            raise ValueError(
                f"{caller}: the support of the latent site {name!r}, {site['fn'].support}, has no "
                "map from unconstrained values; use another distribution, or "
                "numpyro.handlers.reparam"
            ) from None


def _is_subsampled_in_scan(site: Any) -> bool:
    by_handlers = site.get("plate_to_scale", {}).get(None)
    return "_scan_current_index" in site["infer"] and site["scale"] is not by_handlers


class FlatDensity:
    """The log density of one chain's flat unconstrained values, as a function, [d] to [].

    Auxiliary sites (the unit noise of hidden layers) are latent, as for NumPyro's NUTS. Of the
    `prototype` of unconstrained values the shapes count.
    """

    def __init__(self, potential: Potential, prototype: Values, call: Call) -> None:
        self._potential, self._call = potential, call
        self.unravel = ravel_pytree(prototype)[1]

    def __call__(self, position: Flat) -> Array:
        """Return log p(y, latents) + log |d latents / d unconstrained|, in nats, []."""
        # Sites that are random but not latent, such as numpyro.prng_key, are the same at each call.
        program = handlers.seed(self._potential.program, random.PRNGKey(0))
        unconstrained = self.unravel(position)
        with TRACING:
            args, kwargs = self._call
            return -jnp.asarray(potential_energy(program, args, kwargs, unconstrained))

    def parts(self, position: Flat) -> tuple[Array, Array]:
        """Return the log density that `prior_draw` has, and what is left of the whole, [] each.

        The first includes the log-determinant of the constraining transform. The second has the
        observed sites, factors, and what scales and masks add to the latent sites.
        """
        unconstrained, as_drawn = self.unravel(position), _AsDrawn(self._potential.program)
        # All latent sites have values here, so the energy's key draws nothing.
        drawn, whole = (
            potential(random.PRNGKey(0), unconstrained, self._call)
            for potential in (Potential(as_drawn), self._potential)
        )
        observed = [p for n, p in drawn.log_densities.items() if n not in unconstrained]
        data = jnp.asarray(sum(observed), float)
        prior = -drawn.value - data
        return prior, -whole.value - prior if as_drawn.changes else data

    def prior_draw(self, key: PRNGKey) -> Flat:
        """Return a draw of the prior, [d]; raise ValueError if a site's distribution has none."""
        seeded = handlers.seed(self._potential.program, key)
        try:
            with alone():
                sites = handlers.trace(seeded).get_trace(*self._call.args, **self._call.kwargs)
        except NotImplementedError as error:  # by NumPyro's ImproperUniform
            raise ValueError(
                "ParallelTempering: a latent site has an improper prior, of which there are no "
                "draws; give it a proper one"
            ) from error
        latent = {n: s for n, s in sites.items() if s["type"] == "sample" and not s["is_observed"]}
        values = {n: biject_to(s["fn"].support).inv(s["value"]) for n, s in latent.items()}
        return ravel_pytree(values)[0]


class _AsDrawn(Messenger):
    """Takes scales and masks from latent sites, because draws do not know them."""

    changes = False  # whether there were any

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        self.changes |= msg["scale"] is not None or isinstance(msg["fn"], dist.MaskedDistribution)
        msg["scale"] = None
        while isinstance(msg["fn"], dist.MaskedDistribution):
            msg["fn"] = msg["fn"].base_dist


class ExactKernel(ModelKernel):
    """A `ModelKernel` of steps of a chain's flat unconstrained values, by their exact density."""

    def __init__(self, model: Model, init_strategy: Callable[..., Any] | None) -> None:
        super().__init__(model, init_to_uniform if init_strategy is None else init_strategy)

    @abc.abstractmethod
    def _first(
        self, key: PRNGKey, num_warmup: int, z: Values, position: Flat, density: FlatDensity
    ) -> Any:
        """Return the state of one chain at these values."""

    @abc.abstractmethod
    def _next(self, key: PRNGKey, state: Any, density: FlatDensity) -> tuple[Any, Flat]:
        """Return the state of one chain after a step, and its values."""

    def postprocess_fn(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[Values], Values]:
        """Return a function from unconstrained values to the latent and deterministic sites."""
        program = handlers.seed(self.potential.program, random.PRNGKey(0))

        def constrained(unconstrained: Values) -> Values:
            with TRACING:
                return constrain_fn(program, args, kwargs, unconstrained, return_deterministic=True)

        return constrained

    def _first_states(
        self, key: PRNGKey, num_warmup: int, given: Values, empty: Values, call: Call
    ) -> Any:
        keys, starts, firsts = each_of(key)(lambda key: tuple(random.split(key, 3)))(key)
        values = dict(given)
        if missing := [n for n in empty if n not in given]:
            prototypes = list(empty.values())  # a program would sort the names
            found = self._run("_search", call, starts, prototypes, static=(tuple(empty),))
            values |= {n: found[n] for n in missing}
        self._check_finite(self._run("_are_sound", call, keys, values), keys, values, call)
        return self._run("_begin", call, keys, firsts, values, static=(num_warmup,))

    def _search(self, names: tuple[str, ...], call: Call, keys: PRNGKey, empty: Any) -> Values:
        return find_valid_initial_params(
            keys, self.potential.program, init_strategy=self.init_strategy,
            model_args=call.args, model_kwargs=call.kwargs,
            prototype_params=dict(zip(names, empty, strict=True)),
        )[0][0]  # fmt: skip

    def _are_sound(self, call: Call, keys: PRNGKey, values: Values) -> Array:
        def is_sound(z: Values) -> Array:
            density = FlatDensity(self.potential, z, call)
            value, slope = jax.value_and_grad(density)(ravel_pytree(z)[0])
            return jnp.isfinite(value) & jnp.isfinite(slope).all()

        return each_of(keys)(is_sound)(values)

    def _begin(self, steps: int, call: Call, keys: PRNGKey, firsts: PRNGKey, values: Values) -> Any:
        def one(key: PRNGKey, first: PRNGKey, z: Values) -> Any:
            density = FlatDensity(self.potential, z, call)
            state = self._first(first, steps, z, ravel_pytree(z)[0], density)
            return state._replace(rng_key=key)

        return each_of(keys)(one)(keys, firsts, values)

    def sample(
        self, state: Any, model_args: tuple[Any, ...], model_kwargs: dict[str, Any] | None
    ) -> Any:
        call = Call(model_args, model_kwargs or {})

        def one(state: Any) -> Any:
            density = FlatDensity(self.potential, state.z, call)
            key, key_step = random.split(state.rng_key)
            new, position = self._next(key_step, state, density)
            return new._replace(z=density.unravel(position), rng_key=key)

        return each_of(state.rng_key)(one)(state)
