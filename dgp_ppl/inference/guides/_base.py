"""What all guides of `dgp_ppl.gp` layers share."""

import abc
import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpyro
import numpyro.distributions as dist
from jax import random
from jax.core import Tracer
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import TraceMeanField_ELBO
from numpyro.infer.autoguide import AutoGuide, AutoLaplaceApproximation, AutoNormal
from numpyro.infer.elbo import ELBO

from dgp_ppl._partition import Call, Holder
from dgp_ppl._typing import Model, Params, PRNGKey
from dgp_ppl.core import AbstractInducing, Observed, stratified
from dgp_ppl.inference._handlers import data_plates, survey
from dgp_ppl.inference._optimizer import default_optimizer
from dgp_ppl.inference.guides._local_normal import LocalNormal

__all__ = ["Handed", "Layer", "LayerGuide", "Reshape"]

Reshape = Callable[[str, AbstractInducing], AbstractInducing]


class Layer(NamedTuple):
    """A layer's site as the guide found it.

    Attributes:
        shape: of the inducing values, (M, P).
        inputs: number of inputs D.
        hidden: whether the model samples from it, and so feeds it to other layers.
    """

    shape: tuple[int, int]
    inputs: int
    hidden: bool


class Handed(NamedTuple):
    """What a guide hands to a layer.

    Attributes:
        law: the guide's distribution of the inducing values.
        infer: for the site: ``q`` is a law to integrate over, or None to use the draw.
        value: a draw that was made already; None lets the site draw.
    """

    law: AbstractInducing
    infer: dict[str, Any]
    value: Array | None = None


class LayerGuide(AutoGuide, Holder):
    """A guide of a model made of `dgp_ppl.gp` layers and of whatever other latent sites it has.

    A subclass says what it hands to the layers (`_posterior`). Other latent sites (hyperparameters
    under `handlers.lift`, latent inputs) get the guide `rest`; global ones are drawn first, so that
    a subclass can run the model with them.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        rest: from a model without inducing values to a guide of its other latent sites (not
            `AutoLaplaceApproximation`, which is a point until it is fitted).

    Attributes:
        row_sites: latent inputs, sites [N, Q] of the data's rows, and their Q; once it has run.
    """

    rate: ClassVar[float] = 1.0
    """Share of `fit`'s learning rate at which a fit goes on from params that it is given."""

    rates: ClassVar[dict[str, float]] = {}
    """Shares for some params of the guide's own, by the start of their names, in any fit."""

    white: ClassVar[bool] = False
    """Whether q(v) is the law of a bijection of white noise."""

    has_density: ClassVar[bool] = True
    """Whether the log density of a draw can be told."""

    default_loss: ELBO = TraceMeanField_ELBO()
    """The objective that `fit` takes for this guide unless told another."""

    @property
    def bound_loss(self) -> ELBO:
        """The objective that `evaluate` takes: minus a lower bound on the log evidence."""
        return self.default_loss

    def optimizer(
        self, learning_rate: float, steps: int, slow: frozenset[str], *, goes_on: bool = False
    ) -> Any:
        """The optimiser that `fit` takes for this guide unless told another.

        `slow` names the model's own params; `goes_on` is whether the fit starts from given params.
        """
        share = self.rate if goes_on else 1.0
        rates = tuple((start, own / share) for start, own in self.rates.items())
        return default_optimizer(share * learning_rate, steps, slow, rates, self.row_params)

    @property
    def row_params(self) -> frozenset[str]:
        """Names of params that lead with the rows of the data; once the guide has run."""
        own = {n for n, s in self.prototype_trace.items() if s["local"]} if self._local else set()
        parts = [p for n, p in self._local.items() if n in own and isinstance(p, LocalNormal)]
        return frozenset().union(*(p.params for p in parts))

    def drawn(self) -> Self:
        """The same guide, whose trace's log density is that of its draws alone."""
        return self

    def with_model(self, model: Model) -> Self:
        """The same guide of another model, or of other data, with layers of the same names."""
        other = copy.copy(self)
        vars(other).update(model=model, _layers=None, _global={}, _local={}, _order=[])
        return other

    def for_new_rows(self) -> Self:
        """The same guide without the latent sites of the data's rows, which new rows have not."""
        rows = {n for n, s in self.prototype_trace.items() if s["local"]} if self._local else set()
        if not rows:
            return self
        other = copy.copy(self)
        other._local = {n: part for n, part in self._local.items() if n not in rows}
        other._order = [n for n in self._order if n not in rows]
        return other

    def __init__(self, model: Model, *, rest: Callable[[Model], AutoGuide] = AutoNormal) -> None:
        super().__init__(model)
        self._rest_factory = rest
        self._layers: dict[str, Layer] | None = None
        self._global: dict[str, Any] = {}
        self._local: dict[str, Any] = {}
        self._order: list[str] = []
        self.row_sites: dict[str, int] = {}

    @abc.abstractmethod
    def _posterior(
        self,
        given: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reshape: Reshape | None = None,
    ) -> dict[str, Handed]:
        """What each layer gets; `given` are the draws of the other global sites.

        `reshape` replaces the law of a layer before anything is drawn from it.
        """

    @abc.abstractmethod
    def _options(self) -> tuple[Any, ...]:
        """What the program depends on besides the model and its layers; hashable."""

    def __eq__(self, other: object) -> bool:
        """Whether two guides are the same program: what was compiled for one serves the other."""
        if self is other or not isinstance(other, LayerGuide):
            return self is other
        found = self._layers is not None and not (self._global or self._local)
        return found and self._program() == other._program()

    def __hash__(self) -> int:
        return hash((type(self), self.model, self._options()))

    def _program(self) -> tuple[Any, ...]:
        rest = {**self._global, **self._local}
        return (type(self), self.model, self._options(), self._layers, rest)

    @property
    def layers(self) -> dict[str, Layer]:
        """The layers by site name, in the model's order; once the guide has run."""
        if self._layers is None:
            name = type(self).__name__
            raise ValueError(f"{name}: call the guide once (SVI.init does) before asking of it")
        return self._layers

    def setup(self, *args: Any, **kwargs: Any) -> None:
        """Find the model's latent sites; takes the model's arguments. The first call does it too.

        To be called outside of `jax.jit` where the model has latent sites besides its layers.
        """
        if self._layers is None:
            self._setup_prototype(*args, **kwargs)

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        """Find the layers by running the model once on shapes alone."""
        trace = survey(self.model, Call(args, kwargs))
        sites = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
        layers = {n: s for n, s in sites.items() if "inducing" in s["infer"]}
        if not layers:
            raise ValueError(
                f"{type(self).__name__}: the model has no dgp_ppl.gp layer; its latent sites are "
                f"{list(sites)}"
            )
        # A layer that is sampled from (and so has unit noise) is a hidden one.
        noisy = {n.rsplit(".eps", 1)[0] for n in sites if ".eps" in n}
        self._layers = {
            n: Layer(
                s["fn"].event_shape,
                s["infer"]["inducing"]["inputs"][-1],
                n.removesuffix(".v") in noisy,
            )
            for n, s in layers.items()
        }
        # What `observe` describes is data, also in a call without it.
        others = {
            n: {frame.name for frame in s["cond_indep_stack"]}
            for n, s in sites.items()
            if n not in layers
            and not s["infer"].get("is_auxiliary")
            and not isinstance(s["fn"], Observed)
        }
        # Normals are independent, so each global site can have a guide of its own; those of plates
        # share their plates' rows, and those of the data's plates are at home in these rows alone.
        rows = data_plates(trace)
        globals_ = [n for n, plates in others.items() if not plates]
        local = [n for n, plates in others.items() if plates & rows]
        plated = [n for n, plates in others.items() if plates and not plates & rows]
        self._global, self._local = {}, {}
        if self._rest_factory is AutoNormal:
            self._global = self._normals({n: sites[n]["fn"] for n in globals_}, args, kwargs)
        else:
            self._global = self._part(globals_, sites, args, kwargs)
        for group in filter(None, (local, plated)):
            if self._rest_factory is AutoNormal:
                self._local[group[0]] = LocalNormal(self.model, group, trace)
            else:
                self._local |= self._part(group, sites, args, kwargs)
        self._order = [n for n in sites if n in layers or n in globals_ or n in self._local]
        shapes = {n: sites[n]["fn"].shape() for n in local}
        # Another model of the same latent inputs can have them given (`of`).
        widths = {n: shape[1] for n, shape in shapes.items() if len(shape) == 2}
        self.row_sites = widths or self.row_sites
        self.prototype_trace = {
            n: {"type": s["type"], "name": n, "shape": s["fn"].shape(), "local": n in local}
            for n, s in sites.items()
        }

    def _normals(
        self, laws: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, AutoGuide]:
        """A guide of each site by itself, which need know no more than the site's prior.

        Given the whole model NumPyro would run it, uncompiled, and its gradient, for every site.
        """
        # A prior that was computed inside the model is known on shapes alone so far, and has to be
        # known no better, unless its support was computed there too.
        known = {n: _stand_in(law) for n, law in laws.items()}
        unknown = [n for n, law in known.items() if _is_traced(law)]

        def priors(key: PRNGKey) -> dict[str, Any]:
            trace = handlers.trace(handlers.seed(self.model, key)).get_trace(*args, **kwargs)
            return {n: trace[n]["fn"] for n in unknown}

        # First run within a transformation, a guide outlives it: it must keep none of its tracers.
        with handlers.block(), jax.ensure_compile_time_eval():
            if unknown:
                within = _is_traced((args, kwargs))  # one program would have all of them traced
                known |= (priors if within else jax.jit(priors))(random.PRNGKey(0))
            parts: dict[str, AutoGuide] = {n: AutoNormal(_only(n, w)) for n, w in known.items()}
            for part in parts.values():
                with handlers.seed(rng_seed=0):
                    part(*args, **kwargs)
        return parts

    def _part(
        self, group: list[str], sites: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, AutoGuide]:
        """A guide of some of the model's sites, by the first one's name."""
        if not group:
            return {}
        hidden = [n for n in sites if n not in group]
        part = self._rest_factory(handlers.block(self.model, hide=hidden))
        if isinstance(part, AutoLaplaceApproximation):
            raise TypeError(
                f"{type(self).__name__}: rest makes an AutoLaplaceApproximation, whose q is its "
                "mode until a fit is over, and would be the mode in all predictions; wanted "
                "AutoMultivariateNormal, say, or AutoDelta for the mode alone"
            )
        if self._global or self._local:
            part.prefix = f"{part.prefix}_{group[0]}"  # two joint guides' sites need two names
        with jax.ensure_compile_time_eval(), handlers.block(), handlers.seed(rng_seed=0):
            part(*args, **kwargs)
        return {group[0]: part}

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Draw all latent sites; takes the model's arguments."""
        self.setup(*args, **kwargs)
        drawn = self._draw_globals(args, kwargs)
        given = {n: s["value"] for n, s in drawn.items()}
        handed = self._posterior(given, args, kwargs)
        draws = {}
        # A joint guide's own noise, whose density is that of all its sites.
        own = [n for n in drawn if n not in self._order]
        # TraceMeanField_ELBO wants the guide's sites in the model's order.
        for name in (*own, *self._order):
            if name in handed:
                draws[name] = _emit(name, *handed[name])
            elif name in drawn:
                site = drawn[name]
                draws[name] = _emit(name, site["fn"], site["infer"], site["value"])
            else:
                with stratified():
                    draws.update(self._local[name](*args, **kwargs))
        return draws

    def _draw_globals(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The sites of the model's other global latents, drawn but not shown yet."""
        if not self._global:
            return {}
        key = numpyro.prng_key()
        with hidden_samples(), handlers.seed(rng_seed=key), handlers.trace() as trace:
            for part in self._global.values():
                part(*args, **kwargs)
        return {n: s for n, s in trace.items() if s["type"] == "sample"}

    def sample_posterior(
        self,
        rng_key: PRNGKey,
        params: Params,
        *args: Any,
        sample_shape: tuple[int, ...] = (),
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Draws of all latent sites from q, each of shape `sample_shape` + the site's shape.

        The arguments after `params` are the model's.
        """
        guide = handlers.substitute(self, data=params)

        def draw(key: PRNGKey) -> dict[str, Any]:
            trace = handlers.trace(handlers.seed(guide, key)).get_trace(*args, **kwargs)
            wanted = {n: s for n, s in trace.items() if s["type"] == "sample"}
            own = {n for n, s in wanted.items() if s["infer"].get("is_auxiliary")}
            latent = {n: s for n, s in wanted.items() if n not in own and not s["is_observed"]}
            return {n: s["value"] for n, s in latent.items()}

        if not sample_shape:
            return draw(rng_key)
        draws = jax.vmap(draw)(random.split(rng_key, math.prod(sample_shape)))
        return jax.tree.map(lambda a: a.reshape(sample_shape + a.shape[1:]), draws)


def _is_traced(tree: Any) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def _stand_in(law: Any) -> Any:
    """A law of the same support and shape, of which no more is known; the law, if they are not."""
    if not _is_traced(law) or _is_traced(law.support):
        return law
    return dist.ImproperUniform(law.support, law.batch_shape, law.event_shape)


def _only(name: str, law: Any) -> Model:
    """A model of one site."""

    def model(*args: Any, **kwargs: Any) -> None:
        numpyro.sample(name, law)

    return model


def hidden_samples() -> Any:
    """Handler under which nothing but params can be seen from outside."""
    return handlers.block(hide_fn=lambda site: site["type"] != "param")


def _emit(name: str, law: Any, infer: dict[str, Any], value: Array | None) -> Any:
    if value is None:
        return numpyro.sample(name, law, infer=infer)
    with handlers.substitute(data={name: value}):
        return numpyro.sample(name, law, infer=infer)
