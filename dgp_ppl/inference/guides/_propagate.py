"""A guide's own run of the model, on rows of its choice, to learn its layers.

The layers' kernels and inducing inputs are known only inside the model; a guide whose laws depend
on them runs the model itself. Layers are answered at their first evaluation, when their inputs are
known, and pass on their conditional means.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer.autoguide import AutoGuide, AutoNormal
from numpyro.primitives import _PYRO_STACK, Messenger

from dgp_ppl._partition import Call
from dgp_ppl._typing import Inputs, Model
from dgp_ppl.core import RandomFunction, function_draws
from dgp_ppl.inference._handlers import survey
from dgp_ppl.inference.guides._base import LayerGuide, hidden_samples
from dgp_ppl.inference.guides._sources import Place, sources

__all__ = ["RunsLayers", "as_rows"]

Answer = Callable[[str, RandomFunction, Inputs], Array]


class _AllMet(BaseException):
    """Ends a run of the model: all of its layers have been answered. No error of the model's."""


class _Answers(Messenger):
    """Has `answer` draw each layer's inducing values at its first evaluation.

    Params that have no value yet start where `params` says: on its own rows, not on the guide's.
    Latent inputs are `columns`, also where the model has them given.
    """

    def __init__(
        self, answer: Answer, params: Callable[[], dict[str, Any]], columns: dict[str, Array]
    ) -> None:
        super().__init__(None)
        self.answer, self.params, self.columns = answer, params, columns

    def _start(self, name: str, start: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Asked only where no handler outside knows a value; the guide's own start as they do."""
        own = self.params()
        return own[name] if name in own else start(*args, **kwargs)

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and "inducing" in msg["infer"]:
            msg["value"] = jnp.zeros(msg["fn"].event_shape)
            msg["infer"]["at_first_call"] = partial(self.answer, msg["name"])
        elif msg["type"] == "sample" and msg["name"] in self.columns:
            msg["value"] = self.columns[msg["name"]]
        elif msg["type"] == "param":
            msg["fn"] = partial(self._start, msg["name"], msg["fn"])
        elif msg["type"] == "plate":
            size, rows = msg["args"]
            if rows is not None and rows < size:
                raise ValueError(
                    f"the guide runs the model on {size} rows of its own, and plate {msg['name']!r}"
                    f" takes {rows} of them; name the model's argument batch_size, or take as many"
                    " rows as a minibatch has"
                )


@contextmanager
def _only(stack: list[Any]) -> Iterator[None]:
    """Handlers of the guide alone: those that the model has entered are none of its params' own.

    A model that hides its params, renames its sites or holds some values would do so with the
    guide's as well. NumPyro has no public way to step out of handlers.
    """
    inside = _PYRO_STACK[:]
    _PYRO_STACK[:] = stack
    try:
        yield
    finally:
        _PYRO_STACK[:] = inside


class RunsLayers(LayerGuide):
    """A guide that runs the model on rows of its choice, to learn its layers."""

    def __init__(self, model: Model, *, rest: Callable[[Model], AutoGuide] = AutoNormal) -> None:
        super().__init__(model, rest=rest)
        self._fixed: frozenset[Place] = frozenset()

    def _setup_prototype(self, *args: Any, **kwargs: Any) -> None:
        super()._setup_prototype(*args, **kwargs)
        trace = survey(self.model, Call(args, kwargs))
        by_layer, observed = sources(self.model, Call(args, kwargs), trace)
        data = {0 if args else "x", *observed}
        for site, found in by_layer.items():
            if taken := [repr(p) for p in found if p in data]:
                self._layers = None
                raise ValueError(
                    f"{type(self).__name__}: the kernel or the inducing inputs of layer "
                    f"{site.removesuffix('.v')!r} are computed from the data (argument "
                    f"{' and '.join(taken)} of the model), and this guide runs the model on other "
                    "rows, where they would be others; compute them outside of the model, and pass "
                    "them as an argument or make them params (numpyro.param)"
                )
        self._fixed = frozenset().union(*by_layer.values())

    def _run_layers(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        x: Inputs,
        given: dict[str, Any],
        answer: Answer,
    ) -> None:
        """Run the model at inputs x; `answer(site, function, inputs)` returns each layer's draw.

        Args:
            args: its positional arguments; the first of all (or ``x=``) is the inputs, or None.
                Arrays with a row per input (y, say) are cut to x's rows, unless layers' kernels or
                inducing inputs are computed from them.
            kwargs: its keyword arguments, likewise; a ``batch_size`` is taken away.
            x: inputs in place of its own, [R, D]; with more columns, those after D are latent
                inputs, in the order of `row_sites`.
            given: values of its other latent sites.
            answer: called once for each layer, in the order of evaluation.

        Raises:
            ValueError: if the model's inputs have other widths, or it does not evaluate a layer.
        """
        own = args[0] if args else kwargs.get("x")
        name = type(self).__name__
        if own is None and not self.row_sites:
            raise ValueError(
                f"{name}: the model has no inputs that the guide could run it on: neither a first "
                f"argument nor x=, but {len(args)} positional arguments and {list(kwargs)}; make "
                "its inputs its first argument, or name them x"
            )
        known = 0 if own is None else jnp.shape(own)[-1] if jnp.ndim(own) else 0
        beside = sum(self.row_sites.values())
        wanted = [known + beside, *([] if own is None else [known])]
        if (own is not None and jnp.ndim(own) != 2) or x.shape[1] not in wanted:
            latent = f", and latent inputs of widths {self.row_sites}" if beside else ""
            raise ValueError(
                f"{name}: the rows that the guide runs the model on have shape {x.shape}, and the "
                "model's first argument, its inputs, has shape "
                f"{None if own is None else jnp.shape(own)}{latent}; wanted "
                f"{' or '.join(f'[R, {w}] and [N, {known}]' for w in dict.fromkeys(wanted))}"
            )
        columns = _columns(x[:, known:], self.row_sites) if x.shape[1] > known else {}
        x = x[:, :known]
        key = numpyro.prng_key()

        @cache
        def own_params() -> dict[str, Any]:
            with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(data=given):
                sites = handlers.trace(self.model).get_trace(*args, **kwargs)
            return {n: s["value"] for n, s in sites.items() if s["type"] == "param"}

        met: set[str] = set()
        around, program = _PYRO_STACK[:], get_opaque_trace_state(convention="flax")

        def keep(site: str, function: RandomFunction, h: Inputs) -> Array:
            if get_opaque_trace_state(convention="flax") != program:
                raise ValueError(
                    f"{name}: the model first evaluates layer {site.removesuffix('.v')!r} within a "
                    "JAX transformation or NumPyro's scan, and what this guide has to learn of it "
                    "could not leave that; evaluate it outside before, or use MeanField"
                )
            met.add(site)
            with _only(around):
                v = answer(site, function, h)
            if met >= set(self.layers):
                raise _AllMet  # likelihoods need not be made for other rows than the data's
            return v

        outside = handlers.seed(rng_seed=key), handlers.substitute(data=given)
        other_args, other_kwargs = self._cut(args, kwargs, own, x)
        with (
            hidden_samples(),
            outside[0],
            outside[1],
            _Answers(keep, own_params, columns),
            function_draws(mode="mean"),
            suppress(_AllMet),
        ):
            self.model(*other_args, **other_kwargs)
        if missing := [n for n in self.layers if n not in met]:
            raise ValueError(
                f"{name}: the model draws the layers {missing} and does not evaluate them"
            )

    def _cut(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], own: Any, x: Inputs
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The model's arguments at other inputs."""
        values: dict[Place, Any] = {**dict(enumerate(args)), **kwargs}
        values.pop("batch_size", None)
        arrays = {p: a for p, a in values.items() if hasattr(a, "shape") and a.ndim > 0}
        size = next((len(a) for p, a in arrays.items() if p not in self._fixed), None)
        for place, array in arrays.items():
            if place not in self._fixed and len(array) == size:
                whole = jnp.asarray(array)
                values[place] = jnp.resize(whole, (len(x), *whole.shape[1:]))
        values[0 if args else "x"] = None if own is None else x
        first = tuple(values.pop(i) for i in range(len(args)))
        return first, {str(name): value for name, value in values.items()}


def as_rows(what: str, value: Any, rows: str, width: int | None = None) -> Any:
    """Inputs [`rows`, `width`] that a guide is given; NumPy's, unless they are traced.

    Raises:
        ValueError: if they are not, by the words in `what`.
    """
    wanted = f"wanted [{rows}, {'D' if width is None else width}] of finite numbers"
    traced = isinstance(value, Tracer)
    try:
        array = value if traced else np.asarray(value) + 0.0
    except (TypeError, ValueError):
        raise ValueError(f"{what} is {value!r}, {wanted}; take rows of x, say") from None
    if array.ndim != 2 or not len(array) or width not in (None, array.shape[1]):
        raise ValueError(
            f"{what} has shape {array.shape}, {wanted}, one row or more; for one input "
            "dimension pass x[:, None]"
        )
    if not traced and not np.isfinite(array).all():
        raise ValueError(f"{what} has values that are NaN or infinite, {wanted}")
    return array


def _columns(x: Array, widths: dict[str, int]) -> dict[str, Array]:
    """The columns of each latent input, one after another."""
    ends = np.cumsum(list(widths.values()))
    return dict(zip(widths, jnp.split(x, ends[:-1], axis=1), strict=True))
