"""Decoupled inducing inputs: one set for the mean of a layer, another for its covariance."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from numpyro.infer.autoguide import AutoGuide, AutoNormal

from dgp_ppl._partition import signature
from dgp_ppl._typing import Inputs, Model, Outputs
from dgp_ppl.core import FullInducing, RandomFunction, Sparse, cholesky_factor, covariance, project
from dgp_ppl.inference.guides._base import Handed, Reshape
from dgp_ppl.inference.guides._propagate import RunsLayers, as_rows
from dgp_ppl.linalg import as_float, default_jitter, matmul, precision_factor

__all__ = ["Decoupled", "DecoupledInducing"]

MeanForm = Literal["gp_centred", "gp", "cb", "orthogonal"]
CovarianceForm = Literal["whitened", "gp", "cb"]

_NEARLY_PRIOR = 0.995  # where "cb" starts for the prior itself, at which its gradient vanishes


class DecoupledInducing(FullInducing):
    """A Gaussian over inducing values, of a function whose mean has a basis of its own.

    With A(x) = L⁻¹ k(Z, x), the mean of f is A'loc + s with the shift
    ``s(x) = k(x, basis) weights - A(x)'L⁻¹ k(Z, basis) weights``. In the kernel's Hilbert space s
    is orthogonal to all k(., Z), so ``|mean|² = |loc|² + |s|²`` and the KL of the functions' laws
    is that of the inducing values plus ``excess = |s|² / 2``: exact, whatever the two sets are
    (Cheng & Boots 2017, eq. 9; Salimbeni et al. 2018, eq. 8).

    Args:
        loc: mean of v at Z, [M, P].
        scale_tril: triangular R with R R' the covariance of v, [P, M, M].
        kernel: the layer's kernel.
        basis: inducing inputs of the mean, [M_a, D].
        weights: [M_a, P].
        projected: L⁻¹ k(Z, basis) weights, [M, P].
        excess: the part of the KL that v does not carry, [].
        upper: whether R is upper-triangular.
    """

    pytree_data_fields = ("kernel", "basis", "weights", "projected", "excess")

    def __init__(
        self,
        loc: Float[Array, "M P"],
        scale_tril: Float[Array, "P M M"],
        *,
        kernel: Any,
        basis: Float[Array, "M_a D"],
        weights: Float[Array, "M_a P"],
        projected: Float[Array, "M P"],
        excess: Float[Array, ""],
        upper: bool = False,
    ) -> None:
        self.kernel, self.basis, self.weights = kernel, basis, weights
        self.projected, self.excess = projected, excess
        super().__init__(loc, scale_tril, upper=upper, validate_args=False)

    def shift(self, A: Array, x: Inputs) -> Outputs:
        across = covariance(self.kernel, self.basis, x)
        return project(across, self.weights) - project(A, self.projected)

    def standard_kl(self) -> Array:
        return super().standard_kl() + self.excess

    def scaled(self, loc: Array, scale: Array) -> "DecoupledInducing":
        of_v = super().scaled(loc, scale)
        return DecoupledInducing(
            of_v.loc,
            of_v.scale_tril,
            kernel=self.kernel,
            basis=self.basis,
            weights=self.weights,
            projected=self.projected,
            excess=self.excess,
            upper=self.upper,
        )


class Decoupled(RunsLayers):
    """Gaussian processes with inducing inputs Z_a for the mean, Z_b for the covariance.

    Every layer's ``q(f) = GP(k(x, Z_a) a, k - k(x, Z_b) (K_bb⁻¹ - K_bb⁻¹ S K_bb⁻¹) k(Z_b, x))``.
    The mean costs O(M_a) per row, so it can have many more inducing inputs than the covariance,
    which costs O(M_b²) per row and output (Cheng & Boots 2017, "Variational inference for Gaussian
    process models with linear complexity"; Havasi et al. 2018, "Deep Gaussian processes with
    decoupled inducing inputs"). Z_b are the model's own inducing inputs, Z_a the param
    ``l1.v.z_mean``. The KL is exact, and the bound is one of the same deep GP.

    A layer's params, and what the forms make of them:

    ============== ============================ ======================================== ==========
    mean           params                       mean of f                                cost
    ============== ============================ ======================================== ==========
    `"gp_centred"` ``weights`` m [M_a, P]       a = L_a⁻ᵀ m, with L_a L_a' = K_aa        O(M_a³)
    `"gp"`         ``weights`` m [M_a, P]       a = K_aa⁻¹ m: m are values at Z_a        O(M_a³)
    `"cb"`         ``weights`` a [M_a, P]       a itself; hard to train                  O(M_a²)
    `"orthogonal"` ``weights`` a [M_a, P],      k(x, Z_b) L⁻ᵀ m, and of k(x, Z_a) a what  O(M_a²)
                   ``loc`` m [M_b, P]           is orthogonal to k(., Z_b)
    ============== ============================ ======================================== ==========

    ============ ================================ ==============================================
    covariance   params                           S
    ============ ================================ ==============================================
    `"whitened"` ``scale_tril`` R [P, M_b, M_b]   L R R' L', with L L' = K_bb
    `"gp"`       ``value_tril`` R [P, M_b, M_b]   R R'
    `"cb"`       ``precision_tril`` T [P, M_b,    (K_bb⁻¹ + T'T)⁻¹: never above the prior's
                 M_b]
    ============ ================================ ==============================================

    `"orthogonal"` (Salimbeni et al. 2018, "Orthogonally decoupled variational Gaussian processes")
    with `"whitened"` has the params of `MeanField` and more, and can be started from its fit; with
    zero weights it is `MeanField`. The guide learns the layers' kernels by running the model on two
    rows of its inputs.

    Draws of v are values at Z_b, with q's law there. `dgp_ppl.predict` has the whole q, and so has
    NumPyro's ``Predictive(dgp.guided(model, guide, params), ...)``; ``Predictive(model,
    guide=guide)``, which hands the model those draws alone, has the prior's interpolation of them,
    without what the mean says beyond Z_b.

    Args:
        model: a model made of `dgp_ppl.gp` layers; its first argument is [N, D].
        z_mean: initial Z_a, [M_a, D]: for all layers; or a sequence of them in the layers' order,
            or a dict by layer name. The outputs of a layer share them.
        mean: form of the mean. The default has no O(M_a³) term and contains `MeanField`; Havasi et
            al.'s own experiments have ``"gp_centred"``.
        covariance: form of the covariance.
        hidden_scale: initial scale of q in hidden layers, a multiple of the prior's square root;
            the others start at the prior (``"cb"``: nearly, where its gradient does not vanish).
        rest: from a model without inducing values to a guide of its other latent sites.

    Raises:
        ValueError: for an unknown form; at the first call if `z_mean` does not fit the layers, or
            the model's first argument is not [N, D].
    """

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
        for name, value, forms in (
            ("mean", mean, get_args(MeanForm)),
            ("covariance", covariance, get_args(CovarianceForm)),
        ):
            if value not in forms:
                wanted = ", ".join(map(repr, forms))
                raise ValueError(f"Decoupled: {name} is {value!r}, wanted one of {wanted}")
        if not 0 < hidden_scale <= 1:
            raise ValueError(f"Decoupled: hidden_scale is {hidden_scale}, wanted one in (0, 1]")
        super().__init__(model, rest=rest)
        self.z_mean = z_mean
        self.mean: MeanForm = mean
        self.covariance: CovarianceForm = covariance
        self.hidden_scale = hidden_scale
        self._bases: dict[str, np.ndarray] = {}

    def _options(self) -> tuple[Any, ...]:
        return (self.mean, self.covariance, self.hidden_scale, signature(self._bases))

    @property
    def arrays(self) -> dict[str, Any]:
        return {"_bases": self._bases}

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)
        self._bases = self._by_layer()

    def _by_layer(self) -> dict[str, np.ndarray]:
        """The initial Z_a of every layer's site."""
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
        # Not as JAX arrays: those made while a program is traced must not be kept.
        what = "Decoupled: z_mean of layer {!r}"
        widths = {site: layer.inputs for site, layer in self.layers.items()}
        return {
            site: as_rows(what.format(names[site]), z, "M_a", widths[site])
            for site, z in bases.items()
        }

    def _posterior(
        self,
        given: dict[str, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reshape: Reshape | None = None,
    ) -> dict[str, Handed]:
        handed: dict[str, Handed] = {}

        def answer(site: str, function: RandomFunction, h: Inputs) -> Array:
            law: Any = self._law(site, function.sparse)
            if reshape is not None:
                law = reshape(site, law)
            handed[site] = Handed(law, {"q": law, "sparse": function.sparse})
            return law.loc

        own = args[0] if args else kwargs.get("x")
        latent = self.row_sites
        if own is None and latent:
            own = jnp.zeros((2, sum(latent.values())))
        if own is None or jnp.ndim(own) != 2:
            shape = None if own is None else jnp.shape(own)
            raise ValueError(
                f"Decoupled: the model's first argument has shape {shape}, wanted [N, D]: two of "
                "its rows are what the guide runs the model on, to learn the layers' kernels"
            )
        self._run_layers(args, kwargs, jnp.asarray(own[:2]), given, answer)
        return handed

    def _law(self, site: str, sparse: Sparse) -> DecoupledInducing:
        """q of one layer, from its params."""
        layer = self.layers[site]
        basis: Any = numpyro.param(f"{site}.z_mean", as_float(self._bases[site]))
        start = jnp.zeros((len(basis), layer.shape[1]), basis.dtype)
        weights: Any = numpyro.param(f"{site}.weights", start)
        loc: Any = None
        if self.mean == "orthogonal":
            loc = numpyro.param(f"{site}.loc", jnp.zeros(layer.shape, basis.dtype))
        scale = self.hidden_scale if layer.hidden else 1.0
        root = self._root(f"{site}.", sparse, layer.shape, scale)
        upper = self.covariance == "cb"
        return _law(sparse, basis, weights, loc, root, self.mean, upper)

    def _root(self, prefix: str, sparse: Sparse, shape: tuple[int, int], scale: float) -> Array:
        """R with R R' the covariance of v, [P, M_b, M_b]; at first scale² I."""
        M, P = shape
        L, inverse = sparse.factor.lower, sparse.factor.inverse

        def triangle(name: str, start: Array) -> Any:
            start = jnp.broadcast_to(start, (P, M, M))
            return numpyro.param(prefix + name, start, constraint=cholesky_factor)

        if self.covariance == "whitened":
            return triangle("scale_tril", scale * jnp.eye(M, dtype=L.dtype))
        if self.covariance == "gp":
            return matmul(inverse, triangle("value_tril", scale * L))
        # (I + L'T'T L)⁻¹ = C⁻ᵀ C⁻¹: no inverse of B = T'T, which may be singular.
        precision = min(scale, _NEARLY_PRIOR) ** -2 - 1
        T = triangle("precision_tril", precision**0.5 * inverse)
        half = matmul(jnp.swapaxes(L, -1, -2), jnp.swapaxes(T, -1, -2))
        return jnp.swapaxes(precision_factor(half, jnp.ones((P, M), L.dtype)), -1, -2)


def _form_law(
    sparse: Sparse,
    basis: Array,
    weights: Array,
    loc: Array | None,
    root: Array,
    mean: MeanForm,
    upper: bool,
) -> DecoupledInducing:
    """The law of these params; `loc` is None unless the mean is orthogonal."""
    if mean in ("cb", "orthogonal"):
        gram = covariance(sparse.kernel, basis, basis)
        # Jitter, as in every Gram matrix: a quadratic form in K_aa could round to below zero.
        square = jnp.sum(weights * project(gram, weights))
        jitter = default_jitter(gram.dtype) * jnp.mean(jnp.asarray(sparse.kernel(basis)))
        square = square + jitter * jnp.sum(jnp.square(weights))
    else:
        inverse = Sparse.build(sparse.kernel, basis, sparse.out).factor.inverse
        if mean == "gp":
            weights = project(jnp.swapaxes(inverse, -1, -2), weights)
        square = jnp.sum(jnp.square(weights))
        weights = project(inverse, weights)
    projected = project(jnp.swapaxes(sparse.project(basis), -1, -2), weights)
    return DecoupledInducing(
        projected if loc is None else loc,
        root,
        kernel=sparse.kernel,
        basis=basis,
        weights=weights,
        projected=projected,
        excess=0.5 * (square - jnp.sum(jnp.square(projected))),
        upper=upper,
    )


_law = jax.jit(_form_law, static_argnums=(5, 6))
