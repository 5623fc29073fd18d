"""The contract of guides of `dgp_ppl.gp` layers."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpyro
import numpyro.distributions as dist
from jax import random
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoGuide, AutoNormal
from numpyro.infer.elbo import ELBO

from dgp_ppl._checks import GivenParams, check_program, params_of
from dgp_ppl._partition import TRACING, Call, ComparedByFields
from dgp_ppl._typing import Fitted, Model, Params, PRNGKey, Values
from dgp_ppl.core import Handover
from dgp_ppl.core._handover import HANDOVER, hidden_layers, is_layer, layer_of
from dgp_ppl.inference.guides._other_sites import OtherSites
from dgp_ppl.inference.programs._handlers import Sites, survey

Replace = Callable[[str, Any], Any]
"""From a layer's site and its q(v) to the distribution that takes its place."""


class Layer(NamedTuple):
    """A layer's site as the guide found it."""

    shape: tuple[int, int]  # of the inducing values, (M, P)
    inputs: int  # number of inputs D
    hidden: bool  # whether the model samples from the layer, and so feeds it to other layers

    @property
    def size(self) -> str:
        """The numbers in words, for errors."""
        (M, P), D = self.shape, self.inputs
        return f"{M} inducing inputs of {D} columns and {P} output{'s' * (P != 1)}"


class Found(NamedTuple):
    """What a guide finds in its model at its first call."""

    layers: dict[str, Layer]  # the layers by site name, in the model's order
    others: OtherSites  # the guides of the model's other latent sites
    more: dict[str, Any]  # what subclasses find, by name


class DrawnTogether(dist.Distribution):
    """The distribution of a v drawn with other layers; `log_density` is None if q has none."""

    support: Any = constraints.real_matrix
    pytree_data_fields = ("log_density",)

    def __init__(self, shape: tuple[int, ...], log_density: Array | None = None) -> None:
        self.log_density = log_density
        super().__init__((), shape)

    def sample(self, key: PRNGKey, sample_shape: tuple[int, ...] = ()) -> Array:
        raise NotImplementedError(
            "the guide draws all layers together, wanted no draw of one; call sample_posterior"
        )

    def log_prob(self, value: Any) -> Array:
        if self.log_density is None:
            raise NotImplementedError(
                "Implicit: q(v) has no density, and this objective needs one; use "
                "loss=dgp_ppl.AdversarialELBO()"
            )
        return self.log_density


class LayerGuide(ComparedByFields, AutoGuide):
    """A guide of a model made of `dgp_ppl.gp` layers and other latent sites.

    A subclass implements one method, `posterior`: what to hand over to each layer. It takes its
    params by `numpyro.param` and may draw keys by `numpyro.prng_key`. The base class finds the
    layers, puts their handovers at the sites, and gives the other latent sites (hyperparameters
    under `numpyro.handlers.lift`, latent inputs) the guide `rest`::

        class PointEstimate(dgp.LayerGuide):
            def posterior(self, call):
                found = {}
                for site, layer in self.layers.items():
                    v = numpyro.param(f"{site}.loc", jnp.zeros(layer.shape))
                    found[site] = Handover(None, site=dist.Delta(v, event_dim=2))
                return found

    Two guides are equal, and share compiled programs, if their attributes are equal. Attributes
    named in `array_fields` do not count: programs take their arrays as arguments. A subclass with a
    constructor passes the model on by ``super().__init__(model)``, and keeps each argument in an
    attribute of the same name, which `dgp_ppl.save` reads.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        rest: from a model without inducing values to a guide of its other latent sites. (Not
            `AutoLaplaceApproximation`, which is a point until its fit is over.)

    Attributes:
        row_sites: latent inputs, sites [N, Q] of the data's rows, and their Q. Known once the guide
            has run.
    """

    rate: ClassVar[float] = 1.0
    """Share of `fit`'s learning rate for a fit that starts from given params."""

    rates: ClassVar[dict[str, float]] = {}
    """Shares of the learning rate in any fit, for params whose names start with the keys."""

    optimizer: Any = None
    """Makes the optimiser of the guide's and the model's params, from the learning rate, the number
    of steps and the names of the model's own params. None for `fit`'s default."""

    has_density: ClassVar[bool] = True
    """Whether the log density of a draw is known."""

    default_loss: ELBO = TraceMeanField_ELBO()
    """Objective that `fit` uses unless it is given another."""

    def __init__(self, model: Model, *, rest: Callable[[Model], AutoGuide] = AutoNormal) -> None:
        check_program(type(self).__name__, "model", model)
        super().__init__(model)
        self.rest = rest
        self.found: Found | None = None
        self.row_sites: dict[str, int] = {}

    @abc.abstractmethod
    def posterior(self, call: Call) -> dict[str, Handover]:
        """Return each layer's `Handover`, by the names of the layers' sites.

        Args:
            call: the model's arguments, and the draws of its other global latent sites (`given`).
        """

    @property
    def bound_loss(self) -> ELBO:
        """Objective that `evaluate` uses: minus a lower bound on the log evidence."""
        return self.default_loss

    @property
    def layers(self) -> dict[str, Layer]:
        """The layers by site name, in the model's order; known once the guide has run."""
        if self.found is None:
            name = type(self).__name__
            raise ValueError(f"{name}: the layers are not known yet; call the guide once, or setup")
        return self.found.layers

    @property
    def other_sites(self) -> OtherSites:
        """The guides of the model's other latent sites; known once the guide has run."""
        assert self.layers
        assert self.found is not None
        return self.found.others

    @property
    def row_params(self) -> frozenset[str]:
        """Names of params whose leading axis is the rows of the data; known once it has run."""
        return frozenset() if self.found is None else self.found.others.row_params

    @property
    def natural_params(self) -> frozenset[str]:
        """Names of params to which `fit` gives natural steps; known once the guide has run."""
        return frozenset()

    @property
    def own_prefixes(self) -> tuple[str, ...]:
        """What the names of the guide's params start with; known once it has run."""
        return tuple(f"{site}." for site in self.layers)

    def random_key(self) -> PRNGKey:
        """Return a new random key of the program's."""
        key = numpyro.prng_key()
        if key is None:
            raise ValueError(
                f"{type(self).__name__} needs a random key: run it under numpyro.handlers.seed, or "
                "through SVI"
            )
        return key

    def drawn(self) -> Self:
        """Return the same guide with a trace whose log density is the density of its draws."""
        return self

    def with_model(self, model: Model) -> Self:
        """Return the same guide for another model, or other data, with layers of the same names."""
        return self.replace(model=model, found=None)

    def for_new_rows(self, shared: Callable[[], frozenset[str]]) -> Self:
        """Return the same guide; of latent sites in plates, only those `shared` by all rows."""
        if self.found is None or not self.found.others.has_plated:
            return self
        others = self.found.others.for_new_rows(shared())
        return self.replace(found=self.found._replace(others=others))

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Find the model's latent sites; takes the model's arguments. The first call does it too.

        Call it outside of `jax.jit` if the model has latent sites besides its layers.
        """
        self.find_sites(Call(args, kwargs))

    def find_sites(self, call: Call, trace: Sites | None = None) -> None:
        """Find the latent sites in a `survey` of the model, which runs it unless it is given."""
        with TRACING:
            if self.found is not None:
                return
            if "row_sites" not in vars(self):
                raise TypeError(
                    f"{type(self).__name__}: its __init__ does not call super().__init__(model); "
                    "add that"
                )
            try:
                self.find_layers(call, survey(self.model, call) if trace is None else trace)
            except BaseException:
                self.found = None  # what a subclass looks for is missing
                raise

    def find_layers(self, call: Call, trace: Sites) -> None:
        """Find the layers and other sites in a `survey` of the model."""
        sites = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        found = {n: s for n, s in sites.items() if is_layer(s)}
        if not found:
            raise ValueError(
                f"{type(self).__name__}: the model has no dgp_ppl.gp layer; its latent sites are "
                f"{list(sites)}"
            )
        hidden = hidden_layers(sites)
        layers = {
            n: Layer(s["fn"].event_shape, layer_of(s).num_inputs, n in hidden)
            for n, s in found.items()
        }
        name = type(self).__name__
        others = OtherSites(name, self.model, self.rest, trace, layers, call)
        self.found = Found(layers, others, {})
        # Another model with the same latent inputs can have them as arguments (`with_model`).
        self.row_sites = others.row_sites or self.row_sites
        self.prototype_trace = {
            n: {"type": s["type"], "name": n, "shape": s["fn"].shape()} for n, s in sites.items()
        }

    def check_layer(self, site: str, shape: tuple[int, ...], inputs: int | None = None) -> None:
        """Raise unless a layer has the shapes that it had when the guide first ran."""
        then = self.layers[site]
        if shape != then.shape or inputs not in (None, then.inputs):
            now = Layer((shape[0], shape[1]), then.inputs if inputs is None else inputs, False)
            raise ValueError(
                f"{type(self).__name__}: layer {site.removesuffix('.v')!r} has {now.size}, and had "
                f"{then.size} at the guide's first call. A guide keeps the shapes of its first "
                "call: make a new one for other inducing inputs or data"
            )

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Draw all latent sites; takes the model's arguments."""
        self.setup(*args, **kwargs)
        others = self.other_sites
        globals_ = others.draw_globals(Call(args, kwargs))
        call = Call(args, kwargs, {n: s["value"] for n, s in globals_.items()})
        handovers = self.posterior(call)
        draws = {}
        # The noise of a joint guide comes first: its density is the density of all its sites.
        joint = [n for n in globals_ if n not in others.order]
        # TraceMeanField_ELBO needs the guide's sites in the model's order.
        for name in (*joint, *others.order):
            if name in handovers:
                h = handovers[name]
                draws[name] = _sample(name, h.distribution, {HANDOVER: h}, h.value)
            elif name in globals_:
                site = globals_[name]
                draws[name] = _sample(name, site["fn"], site["infer"], site["value"])
            else:
                draws.update(others.draw_local(name, call))
        return draws

    def sample_posterior(
        self,
        rng_key: PRNGKey,
        params: Params | Fitted,
        *args: Any,
        sample_shape: tuple[int, ...] = (),
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Draw all latent sites from q, each of shape `sample_shape` + the site's shape.

        The arguments after `params` are the model's.
        """
        caller = f"{type(self).__name__}.sample_posterior"
        guide = GivenParams(self, params_of(caller, params), caller)
        if not sample_shape:
            return _latents(guide, rng_key, args, kwargs)
        keys = random.split(rng_key, math.prod(sample_shape))
        draws = jax.vmap(lambda key: _latents(guide, key, args, kwargs))(keys)
        return jax.tree.map(lambda a: a.reshape(sample_shape + a.shape[1:]), draws)


class TransportGuide(LayerGuide):
    """A guide that other guides and samplers can build on: the second contract.

    Its q(v) maps the reference space, unit noise N(0, I), to v: each layer's q is a
    `TransportInducing`, given the layers below it. A subclass implements `transport`.
    """

    bijective: ClassVar[bool] = True
    """Whether draws of v determine the function's posterior mean, so that samplers can move in the
    reference space."""

    @abc.abstractmethod
    def transport(self, call: Call, replace: Replace) -> dict[str, Handover]:
        """Do what `posterior` does, with ``replace(site, q)`` instead of each layer's q(v).

        The replacement happens before anything is drawn from q, so that later layers follow it.
        """

    def posterior(self, call: Call) -> dict[str, Handover]:
        return self.transport(call, lambda site, q: q)


def _latents(guide: Any, key: PRNGKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Values:
    """Return one draw of the latent sites, without auxiliary ones."""
    with TRACING:
        trace = handlers.trace(handlers.seed(guide, key)).get_trace(*args, **kwargs)
    sites = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    return {n: s["value"] for n, s in sites.items() if not s["infer"].get("is_auxiliary")}


def _sample(name: str, fn: Any, infer: dict[str, Any], value: Array | None) -> Any:
    """Sample a site, at a known value or a new draw."""
    if value is None:
        return numpyro.sample(name, fn, infer=infer)
    with handlers.substitute(data={name: value}):
        return numpyro.sample(name, fn, infer=infer)
