"""A posterior that couples the layers, by pseudo-observations at propagated inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro
import optax
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.infer.autoguide import AutoGuide, AutoNormal

from dgp_ppl._checks import GivenParams, check_positive, params_of
from dgp_ppl._partition import Call, alone
from dgp_ppl._typing import Fitted, Inputs, Model, Params, PRNGKey
from dgp_ppl.core import FullInducing, Handover, RandomFunction, TransportInducing
from dgp_ppl.inference.guides._base import Replace
from dgp_ppl.inference.guides._mean_field import MeanField, gaussian_params
from dgp_ppl.inference.guides._propagate import PropagatingGuide, check_rows, some_params
from dgp_ppl.inference.programs._handlers import Sites
from dgp_ppl.linalg._factor import precision_factor
from dgp_ppl.linalg._products import as_float, diagonal, matmul

_MATCHING_STEPS = 300


class GlobalInducing(PropagatingGuide):
    """A Gaussian posterior that couples the layers through propagated pseudo-inputs.

    The first layer's q(v) is `MeanField`'s. A later layer's q(v) is the prior times a
    Gaussian pseudo-likelihood of the function at pseudo-inputs h, which are propagated through the
    draws of the layers below: ``q(v | below) ∝ N(v; 0, I) prod_j N(t_j; A(h_j)'v, 1/lambda_j)``.

    Start from a mean-field fit. From scratch, as many steps reach a lower bound::

        first = dgp.fit(key, model, mean_field, x, y, z=z)
        guide = dgp.GlobalInducing(model, pseudo_inputs=z[0])
        start = guide.start_from(key, mean_field, first.params, x, z=z)
        result = dgp.fit(key, model, guide, x, y, z=z, start=start)

    Params: ``pseudo_inputs`` [R, D]; for the first layer `MeanField`'s; for a later layer
    ``l2.v.target`` t and ``l2.v.precision`` lambda, [R, P].

    Args:
        model: a model made of `dgp_ppl.gp` layers; its first argument is the inputs x.
        pseudo_inputs: initial pseudo-inputs, [R, D], such as the first layer's inducing inputs.
            Latent inputs add columns; without these they are drawn from their priors.
        hidden_scale: initial scale of the first layer's q if it is hidden; see `MeanField`.
        precision: initial precision of the pseudo-observations.
        rest: from a model without inducing values to a guide of its other latent sites.

    Raises:
        ValueError: if `pseudo_inputs` is not [R, D], or a number is not positive; at the first call
            if the model's first argument is not [N, D], or its layers are computed from the data.

    Source: after Ober & Aitchison (2021), "Global inducing point variational posteriors for
    Bayesian neural networks and deep Gaussian processes".
    """

    rate: ClassVar[float] = 0.1  # draws of hidden layers make the bound noisier
    array_fields: ClassVar[tuple[str, ...]] = ("pseudo_inputs",)

    def __init__(
        self,
        model: Model,
        pseudo_inputs: ArrayLike,
        *,
        hidden_scale: float = 1e-5,
        precision: float = 1e-2,
        rest: Callable[[Model], AutoGuide] = AutoNormal,
    ) -> None:
        super().__init__(model, rest=rest)
        rows = check_rows("GlobalInducing: pseudo_inputs", pseudo_inputs, "R")
        self.pseudo_inputs = as_float(rows)
        for name, value in (("hidden_scale", hidden_scale), ("precision", precision)):
            check_positive("GlobalInducing", name, value)
        self.hidden_scale, self.precision = hidden_scale, precision

    @property
    def own_prefixes(self) -> tuple[str, ...]:
        return (*super().own_prefixes, "pseudo_inputs")

    def find_layers(self, call: Call, trace: Sites) -> None:
        super().find_layers(call, trace)
        # The first layer that is evaluated has other params than those above it. A later layer may
        # get several rows for each pseudo-input, such as the nodes of a quadrature.
        rows: dict[str, int] = {}

        def visit(site: str, f: RandomFunction, h: Inputs) -> Array:
            rows[site] = len(h)
            return jnp.zeros(self.layers[site].shape)

        def dry_run(key: PRNGKey) -> None:
            with alone(), handlers.substitute(data=some_params(trace)):
                self.propagate(key, call, jnp.asarray(self.pseudo_inputs), visit)

        jax.eval_shape(dry_run, jax.random.PRNGKey(0))
        num = len(self.pseudo_inputs)
        if wrong := {n: r for n, r in list(rows.items())[1:] if r % num}:
            raise ValueError(
                f"GlobalInducing: the model first evaluates {list(wrong)} at {list(wrong.values())}"
                f" rows for {num} pseudo-inputs, wanted {num} or a multiple; evaluate a layer at "
                "all rows before it is evaluated at some of them"
            )
        assert self.found is not None
        self.found.more["rows"] = rows

    @property
    def _rows(self) -> dict[str, int]:
        """Rows at which each layer is evaluated, in the order of evaluation."""
        assert self.found is not None
        return self.found.more["rows"]

    def transport(self, call: Call, replace: Replace) -> dict[str, Handover]:
        inputs: Any = numpyro.param("pseudo_inputs", self.pseudo_inputs)
        key = numpyro.prng_key()
        keys = {site: numpyro.prng_key() for site in self._rows}
        posteriors = self._posteriors()
        handovers: dict[str, Handover] = {}

        def draw(site: str, f: RandomFunction, h: Inputs) -> Array:
            q = replace(site, posteriors[site](f, h))
            layer_key = keys[site]
            assert layer_key is not None
            value, white = q.draw(layer_key)
            used = None if self.layers[site].hidden else q
            handovers[site] = Handover(used, site=q, value=value, white=white, sparse=f.sparse)
            return value

        self.propagate(key, call, inputs, draw)
        return handovers

    def _posteriors(self) -> dict[str, Callable[[RandomFunction, Inputs], TransportInducing]]:
        """Return a function from a layer, and its pseudo-inputs [R, D_l], to its q(v)."""
        first, *later = self._rows
        layer = self.layers[first]
        scale = self.hidden_scale if layer.hidden else 1.0
        gaussian = gaussian_params(first, layer.shape, scale, "full")

        def conditional(site: str) -> Callable[[RandomFunction, Inputs], TransportInducing]:
            shape = (self._rows[site], self.layers[site].shape[1])
            target: Any = numpyro.param(f"{site}.target", jnp.zeros(shape))
            at = jnp.full(shape, self.precision)
            precision: Any = numpyro.param(f"{site}.precision", at, constraint=constraints.positive)
            return lambda f, h: _posterior_of(f.sparse.project(h), target, precision)

        return {first: lambda f, h: gaussian} | {site: conditional(site) for site in later}

    def start_from(
        self,
        key: PRNGKey,
        mean_field: MeanField,
        params: Params | Fitted,
        *args: Any,
        steps: int = _MATCHING_STEPS,
        **kwargs: Any,
    ) -> Params:
        """Return params with which this guide comes nearest to a mean-field fit.

        The model's params and the first layer's q(v) are copied. The pseudo-observations of each
        later layer are fitted to its q(v) by `steps` of Adam on their KL, with pseudo-inputs that
        are propagated through the means of the layers below. This takes seconds. If those layers
        are uncertain, the bound is lower at first, and exceeds the mean-field fit's bound after a
        few hundred steps.

        Args:
            key: random key.
            mean_field: the guide of the fit, with full covariances.
            params: the fit's params, or its result.
            *args: the model's arguments.
            steps: optimiser steps of the match.
            **kwargs: the model's keyword arguments.

        Returns:
            All params, to be given to ``fit(..., start=...)``.

        Raises:
            TypeError: if `params` is neither a dict nor a result.
            ValueError: if `mean_field` is another guide, has other layers, or a param is missing or
                has another shape.
        """
        caller = "GlobalInducing.start_from"
        if not isinstance(mean_field, MeanField) or mean_field.covariance != "full":
            kind = type(mean_field).__name__
            form = getattr(mean_field, "covariance", None)
            raise ValueError(
                f"GlobalInducing.start_from: mean_field is a {kind}"
                f"{f' with covariance={form!r}' if form else ''}, wanted MeanField(model) with its "
                "default covariance, 'full'"
            )
        for guide in (self, mean_field):
            guide.setup(*args, **kwargs)
        if list(mean_field.layers.items()) != list(self.layers.items()):
            raise ValueError(
                f"GlobalInducing.start_from: mean_field has the layers {mean_field.layers}, wanted "
                f"the layers of this guide's model: {self.layers}"
            )
        values: Params = jax.tree.map(jnp.asarray, params_of(caller, params))
        given = GivenParams(None, values, caller)
        posteriors = mean_field.distributions(values)
        arrived: dict[str, tuple[Array, TransportInducing]] = {}

        def draw(site: str, f: RandomFunction, h: Inputs) -> Array:
            arrived[site] = f.sparse.project(h), posteriors[site]
            return posteriors[site].loc

        with alone(), handlers.seed(rng_seed=key), given:
            others = mean_field.other_sites.draw_globals(Call(args, kwargs))
            call = Call(args, kwargs, {n: s["value"] for n, s in others.items()})
            self.propagate(numpyro.prng_key(), call, self.pseudo_inputs, draw)
        own = {n: a for n, a in values.items() if not n.rpartition(".")[0].endswith(".v")}
        own["pseudo_inputs"] = self.pseudo_inputs
        for i, (site, (A, q)) in enumerate(arrived.items()):
            if i == 0:
                own |= {f"{site}.{n}": values[f"{site}.{n}"] for n in ("loc", "scale_tril")}
            else:
                target, precision = _match(A, q, steps)
                own |= {f"{site}.target": target, f"{site}.precision": precision}
        return own


def _posterior_of(
    A: Array, target: Float[Array, "R P"], precision: Float[Array, "R P"]
) -> FullInducing:
    """Return the normalised product of N(v; 0, I) and prod_j N(target_j; A_j'v, 1 / precision_j).

    With C C' = I + A diag(precision) A' it is N(C⁻ᵀ C⁻¹ A diag(precision) target, (C C')⁻¹), for
    every output.
    """
    inverse = precision_factor(A, precision.T)  # C⁻¹, [P, M, M]
    weighted = precision * target
    shared = A.ndim == 2
    moment = matmul(A, weighted).T if shared else jnp.einsum(
        "pmr,rp->pm", A, weighted, precision=lax.Precision.HIGHEST
    )  # fmt: skip
    root = jnp.swapaxes(inverse, -1, -2)
    loc = matmul(root, matmul(inverse, moment[..., None]))[..., 0].T
    return FullInducing(loc, root, upper=True, validate_args=False)


def _match(A: Array, wanted: TransportInducing, steps: int) -> tuple[Array, Array]:
    """Return targets and precisions [R, P] whose q(v) is nearest to `wanted`."""
    positive = biject_to(constraints.positive)
    variance = wanted.variance_of(A).T  # of the function; at most 1 under the prior
    mean = matmul(jnp.swapaxes(A, -1, -2), wanted.loc) if A.ndim == 2 else jnp.einsum(
        "pmr,mp->rp", A, wanted.loc, precision=lax.Precision.HIGHEST
    )  # fmt: skip
    start = {"target": mean, "precision": positive.inv(1 / variance)}

    def kl(free: Params) -> Array:
        q = _posterior_of(A, free["target"], positive(free["precision"]))
        return gaussian_kl(q, wanted)  # the loss of the bound if `wanted` were the posterior

    optimizer = optax.adam(optax.cosine_decay_schedule(0.1, steps))

    def step(_: Any, carry: Any) -> Any:
        free, state = carry
        update, state = optimizer.update(jax.grad(kl)(free), state)
        return optax.apply_updates(free, update), state

    run = jax.jit(lambda free: lax.fori_loop(0, steps, step, (free, optimizer.init(free)))[0])
    found = run(start)
    return found["target"], positive(found["precision"])


def gaussian_kl(p: Any, q: Any) -> Float[Array, ""]:
    """Return KL[p || q] in nats of two full Gaussians over inducing values, over all outputs."""
    white = q.inverse_root
    root = matmul(white, p.scale_tril)
    gap = jnp.einsum("pij,jp->pi", white, p.loc - q.loc, precision=lax.Precision.HIGHEST)
    logs = [jnp.log(diagonal(r)).sum() for r in (q.scale_tril, p.scale_tril)]
    squares = jnp.sum(jnp.square(root)) + jnp.sum(jnp.square(gap))
    return 0.5 * (squares - gap.size) + logs[0] - logs[1]
