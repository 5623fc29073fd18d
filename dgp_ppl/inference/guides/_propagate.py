"""Propagation of a guide's own inputs through the layers of a model.

A posterior that couples the layers needs the layers' kernels, and the values of its pseudo-inputs
at each layer. Both exist only inside the model, so the guide runs the model on its pseudo-inputs.
At its first evaluation, each layer draws its inducing values and passes on its conditional mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Array
from numpyro import handlers
from numpyro.primitives import Messenger

from dgp_ppl._checks import as_array
from dgp_ppl._errors import one_line
from dgp_ppl._partition import Call, Streamed, alone, shape_of
from dgp_ppl._typing import Inputs, Params, PRNGKey
from dgp_ppl.core import RandomFunction, function_draws
from dgp_ppl.core._handover import is_layer, with_handover
from dgp_ppl.inference.guides._base import TransportGuide
from dgp_ppl.inference.guides._sources import Place, sources
from dgp_ppl.inference.programs._handlers import AllLayersSeen, Sites, hidden_samples

Draw = Callable[[str, RandomFunction, Inputs], Array]


class _Propagation(Messenger):
    """Lets `draw` draw each layer's inducing values at the layer's first evaluation.

    Params without a value get the model's initial values on the data, not on the guide's rows.
    """

    def __init__(
        self, draw: Draw, starts: Callable[[], dict[str, Any]], columns: dict[str, Array]
    ) -> None:
        super().__init__(None)
        self.draw, self.starts, self.columns = draw, starts, columns

    def _start(self, name: str, start: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the initial value of a param; called only if no outer handler has a value."""
        known = self.starts()
        return known[name] if name in known else start(*args, **kwargs)

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and is_layer(msg):
            msg["value"] = jnp.zeros(msg["fn"].event_shape)
            msg["infer"] = with_handover(msg, on_first_call=partial(self.draw, msg["name"]))
        elif msg["type"] == "sample" and msg["name"] in self.columns:
            msg["value"] = self.columns[msg["name"]]
        elif msg["type"] == "param":
            msg["fn"] = partial(self._start, msg["name"], msg["fn"])
        elif msg["type"] == "plate":
            size, rows = msg["args"]
            if rows is not None and rows < size:
                raise ValueError(
                    f"the guide runs the model on its {size} rows, and plate {msg['name']!r} "
                    f"takes {rows} of them; name the model's argument batch_size, or give the "
                    "guide as many rows as a minibatch has"
                )


def some_params(trace: Sites) -> Params:
    """Return params of the shapes and dtypes in a `survey`, where values do not matter."""

    def some(leaf: Any) -> Any:
        return jnp.ones(leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf

    return {n: jax.tree.map(some, s["value"]) for n, s in trace.items() if s["type"] == "param"}


class PropagatingGuide(TransportGuide):
    """A guide that runs the model on separate inputs, layer by layer."""

    def find_layers(self, call: Call, trace: Sites) -> None:
        super().find_layers(call, trace)
        by_layer, observed = sources(self.model, call, some_params(trace))
        data = {0 if call.args else "x", *observed}
        for site, found in by_layer.items():
            if taken := [repr(p) for p in found if p in data]:
                raise ValueError(
                    f"{type(self).__name__}: the kernel or the inducing inputs of layer "
                    f"{site.removesuffix('.v')!r} are computed from the data (argument "
                    f"{' and '.join(taken)} of the model), and this guide runs the model on other "
                    "rows, which would change them; compute them outside of the model, and pass "
                    "them as an argument or make them params (numpyro.param)"
                )
        assert self.found is not None
        # Arguments that the layers' kernels and inducing inputs are computed from.
        self.found.more["fixed"] = frozenset().union(*by_layer.values())

    def propagate(self, key: PRNGKey | None, call: Call, x: Inputs, draw: Draw) -> None:
        """Run the model at inputs x; `draw(site, function, inputs)` draws each layer.

        `draw` runs inside the model's handlers, so it must not contain NumPyro's primitives. Take
        params and keys before.

        Args:
            key: random key of the run.
            call: the model's arguments. The first one (or ``x=``) is its inputs, or None. Arrays
                with a row per input, such as y, are cut to the rows of x, unless layers' kernels or
                inducing inputs are computed from them. A ``batch_size`` is removed.
            x: inputs instead of the model's, [R, D]. Columns after D are latent inputs, in the
                order of `row_sites`.
            draw: called once for each layer, in the order of evaluation.
        """
        name = type(self).__name__
        width = self._check_inputs(call, x)
        columns = _columns(x[:, width:], self.row_sites) if x.shape[1] > width else {}
        x = x[:, :width]

        @cache
        def starts() -> dict[str, Any]:
            with alone(), handlers.seed(rng_seed=key):
                sites = handlers.trace(lambda: call.run(self.model)).get_trace()
            return {n: s["value"] for n, s in sites.items() if s["type"] == "param"}

        drawn: set[str] = set()
        program = get_opaque_trace_state(convention="flax")

        def draw_once(site: str, function: RandomFunction, h: Inputs) -> Array:
            if get_opaque_trace_state(convention="flax") != program:
                raise ValueError(
                    f"{name}: the model first evaluates layer {site.removesuffix('.v')!r} within a "
                    "JAX transformation or NumPyro's scan, and what this guide learns of it could "
                    "not leave that; evaluate it outside before, or use MeanField"
                )
            self.check_layer(site, jnp.shape(function.v))
            drawn.add(site)
            v = draw(site, function, h)
            if drawn >= set(self.layers):
                raise AllLayersSeen  # likelihoods need not run on other rows than the data's
            return v

        with (
            hidden_samples(),
            handlers.seed(rng_seed=key),
            _Propagation(draw_once, starts, columns),
            function_draws(mode="mean"),
            suppress(AllLayersSeen),
        ):
            self._on_rows(call, x).run(self.model)
        if missing := [n for n in self.layers if n not in drawn]:
            raise ValueError(f"{name}: the model draws layers {missing} and does not evaluate them")

    def _check_inputs(self, call: Call, x: Inputs) -> int:
        """Return the width D of the model's inputs; 0 if all of them are latent."""
        name, inputs = type(self).__name__, call.inputs
        if inputs is None and not self.row_sites:
            raise ValueError(
                f"{name}: the model has no inputs that the guide could run it on: neither a first "
                f"argument nor x=, but {len(call.args)} positional arguments and "
                f"{list(call.kwargs)}; make its inputs its first argument, or name them x"
            )
        shape = None if inputs is None else shape_of(inputs)
        known = shape[-1] if shape else 0
        latent = sum(self.row_sites.values())
        wanted = [known + latent, *([] if inputs is None else [known])]
        if (shape is not None and len(shape) != 2) or x.shape[1] not in wanted:
            words = f", and latent inputs of widths {self.row_sites}" if latent else ""
            raise ValueError(
                f"{name}: the rows that the guide runs the model on have shape {x.shape}, and the "
                "model's first argument, its inputs, has shape "
                f"{shape}{words}; wanted "
                f"{' or '.join(f'[R, {w}] and [N, {known}]' for w in dict.fromkeys(wanted))}"
            )
        return known

    def _on_rows(self, call: Call, x: Inputs) -> Call:
        call = call.without("batch_size")
        fixed = self.found.more["fixed"] if self.found else frozenset()
        values: dict[Place, Any] = {**dict(enumerate(call.args)), **call.kwargs}
        arrays = {p: a for p, a in values.items() if hasattr(a, "shape") and a.ndim > 0}
        size = next((len(a) for p, a in arrays.items() if p not in fixed), None)
        for place, array in arrays.items():
            if place not in fixed and len(array) == size:
                whole = array.rows if isinstance(array, Streamed) else jnp.asarray(array)
                values[place] = jnp.resize(whole, (len(x), *whole.shape[1:]))
        values[0 if call.args else "x"] = None if call.inputs is None else x
        args = tuple(values.pop(i) for i in range(len(call.args)))
        kwargs = {str(name): value for name, value in values.items()}
        return dataclasses.replace(call, args=args, kwargs=kwargs)


def check_rows(what: str, value: Any, rows: str, width: int | None = None) -> Any:
    """Check a guide's rows [`rows`, `width`]; return NumPy arrays unless they are traced."""
    wanted = f"wanted [{rows}, {'D' if width is None else width}] of finite numbers"
    traced = isinstance(value, Tracer)
    try:
        array = value if traced else np.asarray(as_array(what, "its value", value)) + 0.0
    except (TypeError, ValueError):
        raise ValueError(f"{what} is {one_line(value)}, {wanted}, such as rows of x") from None
    if array.ndim != 2 or not len(array) or width not in (None, array.shape[1]):
        raise ValueError(
            f"{what} has shape {array.shape}, {wanted}, one row or more; for one input "
            "dimension pass x[:, None]"
        )
    if not traced and not np.isfinite(array).all():
        raise ValueError(f"{what} has values that are NaN or infinite, {wanted}")
    return array


def _columns(x: Inputs, widths: dict[str, int]) -> dict[str, Array]:
    """Return the columns of each latent input, one after another."""
    ends = np.cumsum(list(widths.values()))
    return dict(zip(widths, jnp.split(x, ends[:-1], axis=1), strict=True))
