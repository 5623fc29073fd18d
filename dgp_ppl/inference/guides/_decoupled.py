"""Decoupled inducing inputs: one set for the mean of a layer, another for its covariance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import jax
import jax.numpy as jnp
import numpyro
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide, AutoNormal
from numpyro.primitives import Messenger

from dgp_ppl._checks import check_choice, check_positive
from dgp_ppl._partition import Call
from dgp_ppl._typing import Inputs, Model, Outputs
from dgp_ppl.core import FullInducing, Handover
from dgp_ppl.core._conditional import Sparse, covariance
from dgp_ppl.core._handover import is_layer, layer_of, with_handover
from dgp_ppl.core._inducing import cholesky_factor, project
from dgp_ppl.inference.guides._base import Replace, TransportGuide
from dgp_ppl.inference.guides._propagate import check_rows
from dgp_ppl.inference.programs._handlers import AllLayersSeen, Sites, hidden_samples
from dgp_ppl.kernels._base import evaluated
from dgp_ppl.linalg import default_jitter
from dgp_ppl.linalg._factor import precision_factor
from dgp_ppl.linalg._products import as_float, matmul

MeanForm = Literal["orthogonal", "cb"]
"""Form of the mean of a `Decoupled` guide."""

CovarianceForm = Literal["whitened", "cb"]

_NEARLY_PRIOR = 0.995  # where "cb" starts for the prior itself, at which its gradient vanishes


class DecoupledInducing(FullInducing):
    """Gaussian over inducing values of a function whose mean has separate inducing inputs.

    With A(x) = L⁻¹ k(Z, x), the mean of f is A'loc + s with the shift
    ``s(x) = k(x, basis) weights - A(x)'L⁻¹ k(Z, basis) weights``. In the kernel's Hilbert space s
    is orthogonal to all k(., Z), so ``|mean|² = |loc|² + |s|²``. The KL of the functions'
    distributions is therefore the KL of the inducing values plus ``excess = |s|² / 2``, exactly,
    for any two sets of inducing inputs.

    Args:
        loc: mean of v at Z, [M, P].
        scale_tril: triangular R with R R' the covariance of v, [P, M, M].
        kernel: the layer's kernel.
        basis: inducing inputs of the mean, [M_a, D].
        weights: [M_a, P].
        projected: L⁻¹ k(Z, basis) weights, [M, P].
        excess: the part of the KL beyond the KL of v, [].
        upper: whether R is upper-triangular.

    Source: Cheng & Boots (2017), eq. 9; Salimbeni et al. (2018), eq. 8.
    """

    determines_mean: ClassVar[bool] = False
    pytree_data_fields = ("kernel", "basis", "weights", "projected", "excess")

    def __init__(
        self, loc: Float[Array, "M P"], scale_tril: Float[Array, "P M M"], *, kernel: Any,
        basis: Float[Array, "M_a D"], weights: Float[Array, "M_a P"],
        projected: Float[Array, "M P"], excess: Float[Array, ""], upper: bool = False,
    ) -> None:  # fmt: skip
        self.kernel, self.basis, self.weights = kernel, basis, weights
        self.projected, self.excess = projected, excess
        super().__init__(loc, scale_tril, upper=upper, validate_args=False)

    @property
    def moment_root(self) -> None:
        return None

    def shift(self, A: Array, x: Inputs) -> Outputs:
        across = covariance(self.kernel, self.basis, x)
        return project(across, self.weights) - project(A, self.projected)

    def standard_kl(self) -> Array:
        return super().standard_kl() + self.excess

    def scaled(self, loc: Array, scale: Array) -> DecoupledInducing:
        of_v: Any = super().scaled(loc, scale)
        return DecoupledInducing(
            of_v.loc, of_v.scale_tril, kernel=self.kernel, basis=self.basis, weights=self.weights,
            projected=self.projected, excess=self.excess, upper=self.upper,
        )  # fmt: skip


class Decoupled(TransportGuide):
    """Gaussian processes with inducing inputs Z_a for the mean and Z_b for the covariance.

    The mean costs O(M_a) per row and the covariance O(M_b²), so the mean can have many more
    inducing inputs. Z_b are the model's inducing inputs, and Z_a is the param ``l1.v.z_mean``::

        guide = dgp.Decoupled(model, z_mean=dgp.initialize.inducing_inputs(key, x, 300))

    Params: ``weights`` [M_a, P] of the mean, for ``"orthogonal"`` also ``loc`` [M_b, P]; for the
    covariance ``scale_tril`` (``"whitened"``) or ``precision_tril`` (``"cb"``), [P, M_b, M_b]. The
    documentation has the formulas. The default can start from a fit of `MeanField`.

    Predict with `dgp_ppl.predict` or `dgp_ppl.guided`: draws of v, which ``Predictive(model,
    guide=guide)`` uses, do not determine the mean.

    Args:
        model: a model made of `dgp_ppl.gp` layers.
        z_mean: initial Z_a, [M_a, D], for all layers; a sequence in the layers' order; or a dict by
            layer name.
        mean: ``"orthogonal"``, which contains the mean of `MeanField`, or ``"cb"`` (Cheng & Boots
            2017), a weighted sum of the k(x, Z_a), which is harder to train.
        covariance: ``"whitened"``, as in `MeanField`, or ``"cb"``, never above the prior's.
        hidden_scale: initial scale of q in hidden layers; see `MeanField`.
        rest: from a model without inducing values to a guide of its other latent sites.

    Raises:
        ValueError: for an unknown form; at the first call if `z_mean` does not fit the layers.

    Source: Cheng & Boots (2017), "Variational inference for Gaussian process models with linear
    complexity"; Salimbeni et al. (2018), "Orthogonally decoupled variational Gaussian processes";
    Havasi et al. (2018), "Deep Gaussian processes with decoupled inducing inputs".
    """

    bijective: ClassVar[bool] = False  # draws of v do not determine the mean
    array_fields: ClassVar[tuple[str, ...]] = ("z_mean",)

    def __init__(
        self,
        model: Model,
        z_mean: ArrayLike | Sequence[ArrayLike] | Mapping[str, ArrayLike],
        *,
        mean: MeanForm = "orthogonal",
        covariance: CovarianceForm = "whitened",
        hidden_scale: float = 1e-5,
        rest: Callable[[Model], AutoGuide] = AutoNormal,
    ) -> None:
        check_choice("Decoupled", "mean", mean, get_args(MeanForm))
        check_choice("Decoupled", "covariance", covariance, get_args(CovarianceForm))
        check_positive("Decoupled", "hidden_scale", hidden_scale, 1)
        super().__init__(model, rest=rest)
        self.z_mean = z_mean
        self.mean: MeanForm = mean
        self.covariance: CovarianceForm = covariance
        self.hidden_scale = hidden_scale

    def find_layers(self, call: Call, trace: Sites) -> None:
        super().find_layers(call, trace)
        self._bases_by_site()  # raises if they do not fit

    def _bases_by_site(self) -> dict[str, Any]:
        """Return the initial Z_a of every layer's site."""
        given: Any = self.z_mean
        names = {site: site.removesuffix(".v") for site in self.layers}
        if isinstance(given, Mapping):
            if set(given) != set(names.values()):
                raise ValueError(
                    f"Decoupled: z_mean is for the layers {list(given)}, wanted one [M_a, D] for "
                    f"each of {list(names.values())}"
                )
            bases = {site: given[name] for site, name in names.items()}
        else:
            if not isinstance(given, Sequence) or isinstance(given, str):
                given = [given] * len(names)
            each = list(given)
            if len(each) != len(names):
                raise ValueError(
                    f"Decoupled: z_mean has {len(each)} entries, wanted one [M_a, D] for each of "
                    f"the layers {list(names.values())}, or one array for all of them"
                )
            bases = dict(zip(names, each, strict=True))
        # NumPy arrays: JAX arrays that are made while a program is traced must not be kept.
        what = "Decoupled: z_mean of layer {!r}"
        return {
            site: check_rows(what.format(names[site]), z, "M_a", self.layers[site].inputs)
            for site, z in bases.items()
        }

    def transport(self, call: Call, replace: Replace) -> dict[str, Handover]:
        handovers, bases = {}, self._bases_by_site()
        for site, sparse in self._factorised(call).items():
            q = replace(site, self._distribution(site, sparse, bases[site]))
            handovers[site] = Handover(q, sparse=sparse)
        return handovers

    def _factorised(self, call: Call) -> dict[str, Sparse]:
        """Return the factorised kernel matrix of each layer, from the layers' sites.

        NumPyro's objectives need the distribution of v, and so the guide's, before the model runs.
        It depends on the kernel and z, which the model's statements put at the layer's site. They
        run up to the last layer's site, in most models before any layer is evaluated.
        """
        found = _Factorise(self)
        key = numpyro.prng_key()
        with hidden_samples(), handlers.seed(rng_seed=key), found, suppress(AllLayersSeen):
            call.run(self.model)
        return found.sparse

    def _distribution(self, site: str, sparse: Sparse, start_at: Any) -> DecoupledInducing:
        layer = self.layers[site]
        basis: Any = numpyro.param(f"{site}.z_mean", as_float(start_at))
        start = jnp.zeros((len(basis), layer.shape[1]), basis.dtype)
        weights: Any = numpyro.param(f"{site}.weights", start)
        loc: Any = None
        if self.mean == "orthogonal":
            loc = numpyro.param(f"{site}.loc", jnp.zeros(layer.shape, basis.dtype))
        scale = self.hidden_scale if layer.hidden else 1.0
        root = self._root(f"{site}.", sparse, layer.shape, scale)
        upper = self.covariance == "cb"
        return _distribution(sparse, basis, weights, loc, root, upper)

    def _root(self, prefix: str, sparse: Sparse, shape: tuple[int, int], scale: float) -> Array:
        """Return R with R R' the covariance of v, [P, M_b, M_b]; at first scale² I."""
        M, P = shape
        L, inverse = sparse.factor.lower, sparse.factor.inverse

        def triangle(name: str, start: Array) -> Any:
            start = jnp.broadcast_to(start, (P, M, M))
            return numpyro.param(prefix + name, start, constraint=cholesky_factor)

        if self.covariance == "whitened":
            return triangle("scale_tril", scale * jnp.eye(M, dtype=L.dtype))
        # (I + L'T'T L)⁻¹ = C⁻ᵀ C⁻¹: no inverse of B = T'T, which may be singular.
        precision = min(scale, _NEARLY_PRIOR) ** -2 - 1
        T = triangle("precision_tril", precision**0.5 * inverse)
        half = matmul(jnp.swapaxes(L, -1, -2), jnp.swapaxes(T, -1, -2))
        return jnp.swapaxes(precision_factor(half, jnp.ones((P, M), L.dtype)), -1, -2)


class _Factorise(Messenger):
    """Factorises the layers as their sites are met, and ends the run after the last."""

    def __init__(self, guide: Decoupled) -> None:
        super().__init__(None)
        self.guide, self.wanted = guide, set(guide.layers)
        self.sparse: dict[str, Sparse] = {}

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or not is_layer(msg):
            return
        layer = layer_of(msg)
        if msg["name"] in self.wanted:
            self.guide.check_layer(msg["name"], msg["fn"].event_shape, layer.num_inputs)
        sparse = Sparse.build(layer.kernel, layer.z, layer.outputs)
        self.sparse[msg["name"]] = sparse
        msg["value"] = jnp.zeros(msg["fn"].event_shape)
        msg["infer"] = with_handover(msg, sparse=sparse)  # the layer need not factorise again
        if self.wanted <= set(self.sparse):
            raise AllLayersSeen


@partial(jax.jit, static_argnums=5)
def _distribution(
    sparse: Sparse, basis: Array, weights: Array, loc: Array | None, root: Array, upper: bool
) -> DecoupledInducing:
    """Return the distribution of these params; `loc` is None unless the mean is orthogonal."""
    gram = covariance(sparse.kernel, basis, basis)
    # Jitter, as in every Gram matrix: a quadratic form in K_aa could round to below zero.
    square = jnp.sum(weights * project(gram, weights))
    jitter = default_jitter(gram.dtype) * jnp.mean(evaluated(sparse.kernel, basis))
    square = square + jitter * jnp.sum(jnp.square(weights))
    projected = project(jnp.swapaxes(sparse.project(basis), -1, -2), weights)
    return DecoupledInducing(
        projected if loc is None else loc, root, kernel=sparse.kernel, basis=basis, weights=weights,
        projected=projected, excess=0.5 * (square - jnp.sum(jnp.square(projected))), upper=upper,
    )  # fmt: skip
