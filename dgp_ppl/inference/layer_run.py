"""A guide's own run of the model, on rows of its choice, to learn its layers.

The layers' kernels and inducing inputs are known only inside the model; a guide whose laws depend
on them runs the model itself. Layers are answered at their first evaluation, when their inputs are
known, and pass on their conditional means.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array
from numpyro import handlers
from numpyro.primitives import _PYRO_STACK, Messenger

from dgp_ppl._typing import Inputs, Model
from dgp_ppl.gp import RandomFunction, function_draws
from dgp_ppl.inference.layer_guide import Layer, hidden_samples

__all__ = ["run_layers"]

Answer = Callable[[str, RandomFunction, Inputs], Array]


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


def run_layers(
    model: Model,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    x: Inputs,
    given: dict[str, Any],
    layers: dict[str, Layer],
    answer: Answer,
    latent: dict[str, int] | None = None,
) -> None:
    """Run the model at inputs x; `answer(site, function, inputs)` returns each layer's draw of v.

    Args:
        model: the model; its first argument (or ``x=``) is the inputs, or None.
        args: its positional arguments; arrays with a row per input (y, say) are cut to x's rows.
        kwargs: its keyword arguments; ``y`` is cut to x's rows, a ``batch_size`` is taken away.
        x: inputs in place of its own, [R, D]; with more columns, those after D are latent inputs.
        given: values of its other latent sites.
        layers: the layers that must be evaluated.
        answer: called once for each layer, in the order of evaluation.
        latent: the model's latent inputs, sites [N, Q] with their Q.

    Raises:
        ValueError: if the model's inputs have other widths, or it does not evaluate a layer.
    """
    own = args[0] if args else kwargs.get("x")
    known = 0 if own is None else jnp.shape(own)[-1]
    widths = latent or {}
    wanted = [known + sum(widths.values()), *([] if own is None else [known])]
    if (own is not None and jnp.ndim(own) != 2) or x.shape[1] not in wanted:
        beside = f" beside latent inputs of widths {widths}" if widths else ""
        raise ValueError(
            f"the guide runs the model on inputs of shape {x.shape} in place of its first argument,"
            f" which has shape {None if own is None else jnp.shape(own)}{beside}; wanted "
            f"{' or '.join(f'[R, {w}]' for w in dict.fromkeys(wanted))}"
        )
    columns = _columns(x[:, known:], widths) if x.shape[1] > known else {}
    data = [a for a in (own, *args[1:], kwargs.get("y")) if a is not None and jnp.ndim(a) > 0]
    size = jnp.shape(data[0])[0] if data else None
    x = x[:, :known]

    def cut(value: Any) -> Any:
        whole = isinstance(value, jax.Array) and value.shape[:1] == (size,)
        return jnp.resize(value, (len(x), *value.shape[1:])) if whole else value

    key = numpyro.prng_key()

    @cache
    def own_params() -> dict[str, Any]:
        with handlers.block(), handlers.seed(rng_seed=key), handlers.substitute(data=given):
            sites = handlers.trace(model).get_trace(*whole_args, **whole_kwargs)
        return {n: s["value"] for n, s in sites.items() if s["type"] == "param"}

    whole_args, whole_kwargs = args, kwargs
    kwargs = {n: a for n, a in kwargs.items() if n != "batch_size"}
    if kwargs.get("y") is not None:
        kwargs["y"] = cut(jnp.asarray(kwargs["y"]))
    place = None if own is None else x
    if args:
        args = (place, *(cut(jnp.asarray(a)) if hasattr(a, "shape") else a for a in args[1:]))
    else:
        kwargs["x"] = place
    met: set[str] = set()
    around = _PYRO_STACK[:]

    def keep(site: str, function: RandomFunction, h: Inputs) -> Array:
        met.add(site)
        with _only(around):
            return answer(site, function, h)

    outside = handlers.seed(rng_seed=key), handlers.substitute(data=given)
    with (
        hidden_samples(),
        outside[0],
        outside[1],
        _Answers(keep, own_params, columns),
        function_draws(mode="mean"),
    ):
        model(*args, **kwargs)
    if missing := [n for n in layers if n not in met]:
        raise ValueError(f"the model draws the layers {missing} and does not evaluate them")


def _columns(x: Array, widths: dict[str, int]) -> dict[str, Array]:
    """The columns of each latent input, one after another."""
    ends = np.cumsum(list(widths.values()))
    return dict(zip(widths, jnp.split(x, ends[:-1], axis=1), strict=True))
