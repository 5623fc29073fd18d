"""Draws of functions as a model of BoTorch, in float64, which its optimisers need."""
# pyright: reportMissingImports=false

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgp_ppl._checks import check_kind
from dgp_ppl.prediction import FunctionDraws


def botorch_model(draws: FunctionDraws) -> Any:
    """Return draws of the function of a fit as a ``Model`` for BoTorch's acquisition functions.

    Its posterior at X, [..., q, D], is an ``EnsemblePosterior``: f in each of S draws, [..., S, q,
    P], in the units of the data, and differentiable. BoTorch maximises, so let y be a gain::

        f = dgp.function(dgp.predict(key, model, guide, result, x, z=z, standardizer=scale))
        gain = qLogExpectedImprovement(botorch_model(f.draws(key, 128)), best_f=y.max())
        candidates, value = optimize_acqf(gain, bounds, q=2, num_restarts=4, raw_samples=64)

    Samples take the draws in turn, the same at all X: each as often if S divides their number
    (512). JAX computes in float64, where draws of a float32 fit are other ones. f has no noise,
    and the model no ``fantasize``; after a run make it anew, of ``f.condition(x, y)`` or a new fit.

    Args:
        draws: S functions, such as ``dgp.function(p).draws(key, 128)``.

    Raises:
        ImportError: if BoTorch is not installed.
        TypeError: if `draws` is something else.

    Source: Balandat et al. (2020), "BoTorch".
    """
    check_kind("botorch_model", "draws", draws, FunctionDraws, "dgp.function(p).draws(key, 128)")
    if find_spec("botorch") is None:
        raise ImportError("botorch_model: wanted botorch; python -m pip install 'dgp_ppl[botorch]'")
    return _kind()(draws)


@cache
def _kind() -> Any:
    """Return the class of the models."""
    import torch
    from botorch.models.ensemble import EnsembleModel
    from botorch.posteriors.ensemble import EnsemblePosterior

    class Values(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, rows: Any, draws: FunctionDraws) -> Any:
            with jax.enable_x64(True):
                x = jnp.asarray(rows.detach().cpu().numpy(), float)
                if ctx.needs_input_grad[0]:
                    values, ctx.pull = jax.vjp(draws, x)
                else:
                    values = draws(x)
            return torch.as_tensor(np.array(values)).to(rows)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, slopes: Any) -> Any:
            with jax.enable_x64(True):
                (found,) = ctx.pull(jnp.asarray(slopes.cpu().numpy(), float))
            return torch.as_tensor(np.array(found)).to(slopes), None

    class DrawsInTurn(EnsemblePosterior):
        def rsample_from_base_samples(self, sample_shape: Any, base_samples: Any) -> Any:
            # These are random draws, others at each place of a batch, so X would differ by chance.
            taken = torch.arange(sample_shape.numel()) % self.ensemble_size
            return self.values.movedim(-3, 0)[taken].reshape(self._extended_shape(sample_shape))

    class FunctionModel(EnsembleModel):
        batch_shape = torch.Size([])

        def __init__(self, draws: FunctionDraws) -> None:
            super().__init__()
            self.draws = draws
            with jax.enable_x64(True):
                row = jnp.zeros((1, draws.function.prediction.x.shape[1]))
                self._num_outputs = int(np.prod(jax.eval_shape(draws, row).shape[2:]))

        def forward(self, X: Any) -> Any:
            rows = X.reshape(-1, X.shape[-1])
            # One program serves 1 to 8 rows, the next 9 to 16, then 17 to 32, and so on.
            more = max(8, 1 << (len(rows) - 1).bit_length()) - len(rows)
            values = Values.apply(torch.cat([rows, rows[-1:].expand(more, -1)]), self.draws)
            shape = (-1, *X.shape[:-1], self.num_outputs)
            return values[:, : len(rows)].reshape(shape).movedim(0, -3)

        def posterior(
            self, X: Any, output_indices: Any = None, posterior_transform: Any = None, **other: Any
        ) -> Any:
            found = DrawsInTurn(super().posterior(X, output_indices, **other).values)
            return found if posterior_transform is None else posterior_transform(found, X)

    return FunctionModel
