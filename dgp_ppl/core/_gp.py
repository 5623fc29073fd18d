"""The core abstraction: a sparse Gaussian process at one sample site.

A sparse GP is a prior v ~ N(0, I) over whitened inducing values at the site ``NAME.v``, and a map
from v, or from a guide's q(v), and inputs x to the marginals of the function there. Given a draw of
v it gives p(f(x) | v); given the guide's Gaussian q(v) it gives q(f(x)) with v integrated out.

The guide's q(v) reaches the layer as a `Handover` in the site's ``infer`` dict.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import random
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro import handlers, primitives
from numpyro.primitives import Messenger, apply_stack

from dgp_ppl import means
from dgp_ppl._checks import as_array, check_choice, check_count, check_kind
from dgp_ppl._typing import AnyArray, Inputs, Outputs, PRNGKey
from dgp_ppl.core._conditional import Grid, Sparse
from dgp_ppl.core._handover import LAYER, NOISE_OF, Handover, LayerSite, handover_of
from dgp_ppl.core._inducing import AbstractInducing
from dgp_ppl.core._marginals import Marginals
from dgp_ppl.kernels import Covariance, PerOutput
from dgp_ppl.kernels._base import features_of
from dgp_ppl.kernels._terms import check_term
from dgp_ppl.linalg import factorise
from dgp_ppl.linalg._products import as_float, matmul

DrawMode = Literal["joint", "path", "mean"]
"""How `function_draws` draws a layer's function: exactly, by features, or its mean."""


class function_draws(Messenger):  # noqa: N801 - a handler, named as NumPyro's are
    """Handler that replaces every layer by one coherent draw of its function.

    The layer's marginals then have this draw as mean, and variance zero.

    Args:
        fn: the model.
        mode: ``"joint"`` draws exactly at the inputs of each call, by a Cholesky factor of the
            covariance (N up to a few thousand). ``"path"`` draws a whole function by pathwise
            conditioning, at a cost linear in N. ``"mean"`` takes the conditional mean given v.

    Raises:
        ValueError: if the mode is another.
    """

    def __init__(self, fn: Callable[..., Any] | None = None, mode: DrawMode = "joint") -> None:
        check_choice("function_draws", "mode", mode, get_args(DrawMode))
        self.mode = mode
        super().__init__(fn)

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "function_draws":
            msg["value"] = self.mode


def gp(
    name: str,
    kernel: Covariance,
    z: ArrayLike | Grid,
    out: int = 1,
    mean: Callable[[Array], AnyArray] | None = None,
) -> RandomFunction:
    """Draw a layer: `out` sparse GPs at the sample site ``name.v``.

    Args:
        name: prefix of the layer's sites.
        kernel: covariance function of this library or tinygp. `kernels.PerOutput` gives each output
            its own kernel.
        z: inducing inputs [M, D], shared by the outputs, or [out, M, D], one set for each output.
            Or a `Grid` of places and times, for a separable kernel.
        out: number of outputs P.
        mean: fixed mean function, [N, D] -> [N, out] or [N, 1], see `means`; None for zero.

    Returns:
        A random function. Call it at any inputs, any number of times; k(z, z) is factorised once.

    Raises:
        TypeError: if `out` is not an integer, or `kernel` is a class.
        ValueError: if the shapes do not fit, or inside a plate.
    """
    check_kind("gp", "name", name, str, "the name of the layer, such as 'l1'")
    check_count(f"gp({name!r})", "out", out)
    if isinstance(kernel, type) or not callable(kernel):
        raise TypeError(
            f"gp({name!r}): kernel is {getattr(kernel, '__name__', kernel)!r}, wanted one such as "
            "kernels.Matern52.learned(name, dim) or kernels.Matern52(1.0, 0.5)"
        )
    grid = z if isinstance(z, Grid) else None
    z = as_float(as_array(f"gp({name!r})", "z", z.points if isinstance(z, Grid) else z))
    if z.ndim not in (2, 3) or (z.ndim == 3 and z.shape[0] != out) or not z.shape[-2]:
        raise ValueError(
            f"gp({name!r}): z has shape {z.shape}, wanted [M, D] or [out, M, D] with M >= 1 and "
            f"out={out}; for one input dimension pass z[:, None]"
        )
    mean = means.zero if mean is None else mean
    M, D = z.shape[-2:]
    means.check_mean(f"gp({name!r})", mean, M, D, out)
    inducing = z if grid is None else grid
    white, infer = dist.Normal(0, 1).expand([M, out]), {LAYER: LayerSite(kernel, inducing, out)}
    try:
        with handlers.trace() as sites:
            v: Any = numpyro.sample(f"{name}.v", white.to_event(2), infer=infer)
    except AssertionError:  # of NumPyro, if there is no random key
        _key(f"{name}.v")
        raise
    message = [s for s in sites.values() if s["type"] == "sample"][-1]
    if message["cond_indep_stack"]:
        plate = message["cond_indep_stack"][0].name
        raise ValueError(
            f"gp({name!r}) was called inside the plate {plate!r}: a layer is shared by all data. "
            "Create it before entering the plate, and call it inside"
        )
    if jnp.shape(v)[-2:] != (M, out):
        raise ValueError(
            f"gp({name!r}): the inducing values at {message['name']!r} have shape {jnp.shape(v)}, "
            f"wanted {(M, out)}, [M, out]. A guide keeps the shapes of its first call: make a new "
            "one for other inducing inputs"
        )
    handover, site = handover_of(message), message["name"]  # a handler may have renamed the site
    mode = _apply_handlers("function_draws", lambda: None)  # of the innermost of these handlers
    return RandomFunction(name, kernel, inducing, out, mean, v, handover, mode, site)


class RandomFunction:
    """A layer, conditioned on a draw of v or on a guide's q(v). Made by `gp`.

    Attributes:
        name: prefix of the layer's sites.
        site: name of the site of v: ``NAME.v``, unless a handler such as `scope` renames it.
        out: number of outputs P.
        v: the draw of the whitened inducing values, [M, P].
        q: the guide's distribution of v, used instead of the draw; None without one.
        inducing: q, or v without q. The function is conditioned on it.
        guided: whether a guide drew v or handed over q.
        sparse: kernel, inducing inputs, and the Cholesky factor of k(z, z).
    """

    def __init__(
        self,
        name: str,
        kernel: Covariance,
        z: Array | Grid,
        out: int,
        mean: Callable[[Array], AnyArray],
        v: Array,
        handover: Handover,
        draw: DrawMode | None,
        site: str,
    ) -> None:
        self.name, self.site, self.out, self.v = name, site, out, v
        self.mean: Callable[[Any], Any] = mean
        self.guided, self.q, sparse = handover.guided, handover.q, handover.sparse
        self.sparse: Sparse = Sparse.build(kernel, z, out) if sparse is None else sparse
        self._kernel, self._on_first_call = kernel, handover.on_first_call
        self._noises = 0
        self._draw = draw
        self._path = self.path(_key(f"{name}.v")) if self._draw == "path" else None

    @property
    def inducing(self) -> AbstractInducing | Array:
        return self.v if self.q is None else self.q

    @property
    def is_drawn(self) -> bool:
        """Whether `function_draws` draws the function."""
        return self._draw in ("joint", "path")

    @property
    def jitter(self) -> Array:
        """The jitter on the diagonal of k(z, z), in its units: [], or [P]."""
        return self.sparse.factor.jitter

    def __call__(self, x: Inputs) -> Marginals:
        """Return the function's marginals at x: [N, D] -> mean and variance [N, P].

        If a guide handed over q(v), these are the marginals of q(f(x)), with v integrated out.
        Otherwise they are the marginals of p(f(x) | v). They scale, and add to arrays and to the
        marginals of other layers: ``2 * f(x) + g(x) + trend``.
        """
        x = self._arrive(x)
        if self._draw is not None:
            draw = _apply_handlers("function_draw", RandomFunction._function_draw, self, x)
            return Marginals(draw, jnp.zeros_like(draw), self.guided, (self.site,))
        mean, var = self.sparse.marginals(self.inducing, x)
        return Marginals(self.mean(x) + mean, var, self.guided, (self.site,))

    def sample(self, x: Inputs, *, joint: bool = False) -> Outputs:
        """Draw the function at x, [N, P], reparameterised.

        Points are independent given v, as in doubly stochastic VI: the bound only needs the
        marginals. Under MCMC p(y | v) then factorises over points. This is exact for M = N and an
        approximation like FITC otherwise. ``joint=True`` draws jointly, for small N.

        Under a guide the unit noise comes from `numpyro.prng_key`. Without a guide it is the
        auxiliary sample site ``NAME.eps``. Further calls draw independent noise, at the sites
        ``NAME.eps_1``, ``NAME.eps_2`` and so on.
        """
        x = self._arrive(x)
        if self._draw is not None:
            return self(x).mean
        if joint:
            mean, cov = self.joint(x)
            return mean + _correlate(cov, self.sparse.scale(x), self.unit_noise(x))
        f = self(x)
        return f.mean + jnp.sqrt(f.var) * self.unit_noise(x)

    def given(self) -> RandomFunction:
        """Return the function conditioned on the draw of v, also if the guide handed over q(v)."""
        other = copy.copy(self)
        other.q = None
        return other

    def part(self, name: str, kernel: Covariance) -> RandomFunction:
        """Return the function f1 of a layer f = f1 + f2 + ... whose kernel is k1 + k2 + ...

        Its marginals and joint draws have what q says of the sum, and what the prior leaves open
        between the parts; two layers would lose that. Means of parts add up; draws in one pass are
        independent, and do not. Called in the model, `layer_functions` has it, as ``NAME.name``::

            f = dgp.gp("f", trend + season, z)
            f.part("trend", trend)(x)

        Args:
            name: of the part.
            kernel: one of the kernels that add up to the layer's; a ValueError for another.
        """
        check_term(f"gp({self.name!r}).part({name!r})", kernel, self._kernel)
        other = copy.copy(self)
        other.name, other.mean, other._path = f"{self.name}.{name}", means.zero, None
        other.sparse = eqx.tree_at(
            lambda s: (s.kernel, s.parts), self.sparse, (kernel, None), is_leaf=lambda a: a is None
        )
        return other

    def repeatable(self) -> RandomFunction:
        """Return the function for repeated evaluation inside a loop.

        Under `function_draws` every call makes a new joint draw. This function is one path instead.
        """
        if self._draw != "joint":
            return self
        other = copy.copy(self)
        other._draw, other._path = "path", self.path(_key(f"{self.name}.v"))
        return other

    def unit_noise(self, x: Inputs, steps: int | None = None) -> Array:
        """Return unit noise for draws at x: [N, P], or [N, steps, P] with `steps`.

        It comes from the places that `sample` names. The site of several points for each row of a
        plate, as of pairs or regions, is [rows, points, ...].
        """
        shape = (x.shape[0], self.out) if steps is None else (x.shape[0], steps, self.out)
        dtype = jnp.result_type(x, float)
        # NumPyro wants a name of its own for each site, so the noise of further calls is numbered.
        name = f"{self.name}.eps" + (f"_{self._noises}" if self._noises else "")
        self._noises += 1
        infer: dict[str, Any] = {"is_auxiliary": True, NOISE_OF: self.site}
        own, plates = shape, [p for p in primitives._PYRO_STACK if isinstance(p, numpyro.plate)]
        rows = next((p.subsample_size for p in plates if p.dim == -1), 1)
        if rows not in (1, len(x)):
            if len(x) % rows:  # points that all rows share, such as a grid
                infer["block_plates"] = {p.name for p in plates}
            else:
                own = (rows, len(x) // rows, *shape[1:])
        noise: Any = _apply_handlers("unit_noise", lambda *_: None, own, rows == own[0], dtype)
        if noise is None and self.guided:
            return random.normal(_key(name), shape, dtype)
        if noise is None:
            normal = dist.Normal(0, 1).expand(own).to_event(len(own) - 1)
            noise = numpyro.sample(name, normal, infer=infer)
        if jnp.shape(noise)[-len(own) :] != own:
            raise ValueError(
                f"gp({self.name!r}): the site {name!r} has values of shape {jnp.shape(noise)}, "
                f"wanted {own}: the values belong to the rows of the MCMC run; remove the site "
                "from the samples (Predictive then draws it for other rows), or use dgp_ppl.predict"
            )
        return noise if own is shape else jnp.moveaxis(noise, 1, 0).reshape(shape)

    def joint(self, x: Inputs, block: int | None = None) -> tuple[Outputs, Array]:
        """Return mean [N, P] and covariance [P, N, N]; in blocks of B rows, [N / B, P, B, B]."""
        x = self._arrive(x)
        mean, cov = self.sparse.joint(self.inducing, x, block or len(x))
        return self.mean(x) + mean, cov[0] if block is None else cov

    def path(self, key: PRNGKey, num_features: int = 2000) -> Callable[[Inputs], Outputs]:
        """Draw one whole function: a deterministic function [N, D] -> [N, P].

        The draw is pathwise: a prior draw from random features, corrected at the inducing inputs.

        Args:
            key: random key.
            num_features: random features of the prior draw. Its error is O(1 / sqrt(num_features)).

        Raises:
            TypeError: if the kernel has no random features; tinygp's kernels have none.

        Source: Wilson et al. 2020, "Efficiently sampling functions from Gaussian process
        posteriors", eq. 9.
        """
        kernel, z = self.sparse.kernel, self.sparse.z
        own = isinstance(kernel, PerOutput)
        single: Any = kernel.kernel if own else kernel
        key_f, key_w, key_v, key_j = random.split(key, 4)
        v: Any = self.v if self.q is None else self.q.sample(key_v)
        weights = random.normal(key_w, (num_features, self.out)) / jnp.sqrt(num_features)
        keys = random.split(key_f, self.out) if own else key_f

        def output(kernel: Any, key: PRNGKey, x: Inputs, w: Array) -> Array:
            return matmul(features_of(kernel, key, num_features, x.shape[-1])(x), w)

        def prior(x: AnyArray) -> Outputs:  # x: [N, D], or [P, N, D] with inputs per output
            axes = (0 if own else None, 0 if own else None, 0 if x.ndim == 3 else None, 1)
            if axes == (None, None, None, 1):
                return output(single, keys, x, weights)
            return jax.vmap(output, axes, 1)(single, keys, x, weights)

        # The jitter is white noise on the inducing values. The function itself has none.
        noise = random.normal(key_j, v.shape, v.dtype)
        at_z = prior(z) + jnp.atleast_2d(jnp.sqrt(self.jitter)) * noise
        return lambda x: self.mean(x) + prior(x) + self.sparse.correction(self.inducing, v, at_z, x)

    def _function_draw(self, x: Inputs) -> Outputs:
        if self._path is not None:
            return self._path(x)
        if self._draw == "mean":
            return self.mean(x) + self.sparse.marginals(self.inducing, x)[0]
        mean, cov = self.joint(x)
        noise = random.normal(_key(f"{self.name}.eps"), mean.shape, mean.dtype)
        return mean + _correlate(cov, self.sparse.scale(x), noise)

    def _arrive(self, x: Inputs) -> Inputs:
        """Return checked inputs, after a guide that propagates inputs has drawn v at the first."""
        x = self._checked(x)
        if self._on_first_call is not None:
            draw, self._on_first_call = self._on_first_call, None
            self.v = draw(self, x)
        return x

    def _checked(self, x: Inputs) -> Inputs:
        dim = self.sparse.z.shape[-1]
        if isinstance(x, Marginals):
            raise TypeError(
                f"gp({self.name!r}): x is Marginals, wanted an array [N, {dim}]: draw the values "
                "of the layers below, such as f.sample(x) + g.sample(x)"
            )
        if jnp.ndim(x) != 2 or x.shape[-1] != dim:
            raise ValueError(
                f"gp({self.name!r}): x has shape {jnp.shape(x)}, wanted [N, {dim}] "
                "to match z; for one input dimension pass x[:, None]"
            )
        return as_float(x)


@jax.jit
def _correlate(cov: Float[Array, "P N N"], scale: Array, noise: Outputs) -> Outputs:
    """Turn unit noise into a draw with this covariance, for each output at this scale."""
    scale = jnp.broadcast_to(scale, cov.shape[:1])
    root = jax.vmap(lambda K, s: factorise(K, scale=s).lower)(cov, scale)
    return jax.vmap(matmul, (0, 1), 1)(root, noise)


def _apply_handlers(kind: str, default: Callable[..., Any], *args: Any) -> Any:
    """Send a message, as "function_draw", to NumPyro's handlers; or return ``default(*args)``."""
    message: Any = {"type": kind, "fn": default, "args": args, "kwargs": {}, "value": None}
    return apply_stack(message)["value"]  # other handlers ignore a message without a name


def _key(site: str) -> PRNGKey:
    key = numpyro.prng_key() if primitives._PYRO_STACK else None  # without, it warns
    if key is None:
        raise ValueError(
            f"{site} needs a random key: run the model under numpyro.handlers.seed, or through "
            "SVI, MCMC or Predictive"
        )
    return key
