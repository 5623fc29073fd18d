"""Partial evaluation: compute all that does not depend on the inputs, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal
from jaxtyping import Array

__all__ = ["Folded"]

_LATER = object()  # stands for a value that is not known in the current pass

# The program that a primitive calls, if it does nothing else.
_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "checkpoint": "jaxpr",
}


class Folded:
    """A function of arrays in which what does not depend on them is a constant.

    The factors of a sparse GP depend on its params only, so they become constants here. (XLA folds
    constants too, but not factorisations, and a serialised program would compute them at each
    call.)

    >>> import jax.numpy as jnp
    >>> K = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    >>> f = Folded(lambda x: jnp.linalg.inv(K) @ x, jnp.zeros(2))
    >>> f(jnp.array([3.0, 0.0])).tolist(), "lu" in str(jax.make_jaxpr(f)(jnp.zeros(2)))
    ([2.0, -1.0], False)

    Args:
        function: a function of arrays, which JAX can trace.
        *args: arrays of the shapes and dtypes that it will get.

    Attributes:
        constants: the arrays on which the rest depends.
    """

    def __init__(self, function: Callable[..., Any], *args: Array) -> None:
        self._program, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        self._treedef = jax.tree.structure(shape)
        self._uses: list[int] = []  # numbers of the constants, in the order of their use
        unknown = [_LATER] * len(jax.tree.leaves(args))

        # The arrays are arguments of this program: XLA would evaluate operations on its own
        # constants slowly, and with other rounding than predictions have.
        @jax.jit
        def compute(consts: list[Any]) -> list[Any]:
            found: dict[int, tuple[int, Any]] = {}
            uses = []

            def use(value: Any) -> Any:
                uses.append(found.setdefault(id(value), (len(found), value))[0])
                return _LATER

            _walk(self._program, unknown, use, consts, folding=True)
            self._uses = uses
            return [value for _, value in found.values()]

        self.constants: list[Array] = compute(_open(self._program)[1])

    def __call__(self, *args: Any) -> Any:
        """Return the function's value; arguments have the shapes that were given before."""
        uses = iter(self._uses)
        known = [_LATER] * len(_open(self._program)[1])
        found = _walk(
            self._program, args, lambda _: self.constants[next(uses)], known, folding=False
        )
        return jax.tree.unflatten(self._treedef, found)


def _walk(
    program: Any,
    args: Any,
    use: Callable[[Any], Any],
    consts: list[Any],
    *,
    folding: bool,
    outermost: bool = True,
) -> list[Any]:
    """Evaluate a program's operations: the known ones if `folding`, otherwise the others.

    An operation is known if all that it reads is known. The others read known values by `use`, in
    the same order in both passes.
    """
    jaxpr = _open(program)[0]
    values = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= dict(zip(jaxpr.invars, args, strict=True))

    def read(v: Any) -> Any:
        if isinstance(v, Literal):
            return v.val if folding else _LATER
        return values[v]

    def known(v: Any) -> bool:
        return isinstance(v, Literal) or (values[v] is not _LATER) == folding

    def used(v: Any) -> Any:
        if isinstance(v, Literal):
            return v.val
        return use(values[v]) if known(v) else values[v]

    for equation in jaxpr.eqns:
        name, bind = equation.primitive.name, equation.primitive.bind
        later = [_LATER] * len(equation.outvars)
        all_known = all(map(known, equation.invars))
        if all_known and not folding:
            found = later
        elif name in _CALLS:
            inner = equation.params[_CALLS[name]]
            inputs = [read(v) for v in equation.invars]
            own = _open(inner)[1] if folding else [_LATER] * len(_open(inner)[1])
            found = _walk(inner, inputs, use, own, folding=folding, outermost=False)
        elif all_known:
            found = bind(*map(read, equation.invars), **equation.params)
        else:
            inputs = [used(v) for v in equation.invars]
            found = later if folding else bind(*inputs, **equation.params)
        if not isinstance(found, list | tuple):
            found = [found]
        values.update(zip(equation.outvars, found, strict=True))
    return [used(v) if outermost else read(v) for v in jaxpr.outvars]


def _open(program: Any) -> tuple[Any, list[Any]]:
    """Return a program's operations and its constants."""
    return getattr(program, "jaxpr", program), list(getattr(program, "consts", ()))
