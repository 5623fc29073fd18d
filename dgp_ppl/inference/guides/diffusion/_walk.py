"""Walks of a controlled process through its states, and their derivative.

A walk from x_K takes the steps x_k = a_k x_{k+1} + c_k u_k(x_{k+1}) + e_k for k = K - 1 ... 0. Its
steps follow each other, but little of its derivative does. Off CPUs, `walk` linearises the control
at all states at once, and takes the derivative in the control's params for all steps at once. A
loop remains for the derivative in the states. Differentiating the walk's own loop does all of that
at every turn. It is about a fifth less arithmetic, which decides the time on a CPU, but twice the
launches, which decide it on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Var
from jax.tree_util import Partial
from jaxtyping import Array, Float

__all__ = ["Control", "Given", "State", "Steps", "Walk", "walk", "walk_at_once", "walk_by_loop"]

State: TypeAlias = Float[Array, " H"]
Control: TypeAlias = Partial  # its leaves are the params; any other array is a constant
Given = Callable[[State], State]


class Walk(NamedTuple):
    """What a walk went through; index k is that of the step from x_{k+1} to x_k.

    Attributes:
        states: the states x_0 ... x_{K-1}, [K, H].
        before: the states x_1 ... x_K, from which the steps start, [K, H].
        controls: the controls u_k(x_{k+1}), [K, H].
        given: what the control was given at x_{k+1}, a tuple of arrays [K, ...].
    """

    states: Float[Array, "K H"]
    before: Float[Array, "K H"]
    controls: Float[Array, "K H"]
    given: tuple[Array, ...]


class Steps(NamedTuple):
    """The coefficients of steps, in the order of their indices k."""

    k: Array  # [K]
    a: Array  # [K]
    c: Array  # [K]
    e: Array  # [K, H]


def walk(
    control: Control,
    x: State,
    a: Float[Array, " K"],
    c: Float[Array, " K"],
    e: Float[Array, "K H"],
    *,
    given: Given | None = None,
) -> Walk:
    """Walk down from x_K.

    Derivatives keep the states, the controls and what is given in memory; off CPUs, also what the
    control computes at all K states.

    Args:
        control: u, a function of a step's index k and the state x_{k+1}, with its params as leaves.
        x: the state x_K.
        a: coefficients of the states.
        c: coefficients of the controls.
        e: what is added to the states.
        given: a function of the state, which is held constant; the control gets its value as a
            third argument.
    """
    steps = Steps(jnp.arange(len(e)), a, c, e)
    by_loop, at_once = partial(walk_by_loop, given), partial(walk_at_once, given)
    states, controls, values = lax.platform_dependent(
        control, x, steps, cpu=by_loop, default=at_once
    )
    return Walk(states, _before(states, x), controls, values)


def walk_by_loop(given: Given | None, control: Control, x: State, steps: Steps) -> Any:
    """Walk, and differentiate the loop. It computes the controls once more, one by one."""

    @jax.checkpoint
    def advance(x: State, at: Steps, values: tuple[Array, ...]) -> tuple[State, State]:
        u = control(at.k, x, *values)
        return at.a * x + at.c * u + at.e, u

    def step(x: State, at: Steps) -> tuple[State, tuple[Any, ...]]:
        values = () if given is None else (lax.stop_gradient(given(x)),)
        new, u = advance(x, at, values)
        return new, (new, u, values)

    return lax.scan(step, x, steps, reverse=True)[1]


def walk_at_once(given: Given | None, control: Control, x: State, steps: Steps) -> Any:
    """Walk, and differentiate all steps at once as far as possible."""
    walked = walk_by_loop(given, *lax.stop_gradient((control, x, steps)))
    return _followed(control, x, steps, lax.stop_gradient(walked))


def _before(states: Array, x: Array) -> Array:
    return jnp.concatenate([states[1:], x[None]])


@jax.custom_jvp
def _followed(control: Control, x: State, steps: Steps, walked: Any) -> Any:
    """Return what the walk went through, `walked`, with its derivative."""
    return walked


@_followed.defjvp
def _followed_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    control, x, steps, _ = primals
    d_control, dx, d_steps, _ = tangents
    out = states, _, values = _followed(*primals)
    at = (steps.k, _before(states, x), *values)
    # Of the params, for all steps at once.
    _, of_params = jax.jvp(lambda f: jax.vmap(f)(*at), (control,), (d_control,))
    own, slope_of = _slopes(control, at)

    def step(dx: State, at: tuple[Any, ...]) -> tuple[State, tuple[State, State]]:
        own, a, c, change = at
        through = slope_of(own)(dx)
        new = a * dx + c * through + change
        return new, (new, through)

    # One array of changes: the transposed loop then stores one.
    changes = steps.c[:, None] * of_params + d_steps.e
    _, (d_states, through) = lax.scan(step, dx, (own, steps.a, steps.c, changes), reverse=True)
    return out, (d_states, through + of_params, jax.tree.map(jnp.zeros_like, values))


def _slopes(control: Control, at: tuple[Array, ...]) -> tuple[list[Array], Callable[..., Any]]:
    """Linearise the control in the state, at all states at once.

    Returns:
        Arrays [K, ...], and a function from those of a step to the step's linear map. Arrays that
        the steps share, such as weights, are not repeated for each: a loop would copy them.
    """
    tree: Any = None

    def derivative(k: Array, x: State, *values: Array) -> list[Array]:
        nonlocal tree
        _, linear = jax.linearize(lambda x: control(k, x, *values), x)
        leaves, tree = jax.tree.flatten(linear)
        return leaves

    of_step = _depend(jax.make_jaxpr(derivative)(*(a[0] for a in at)).jaxpr)
    axes = [0 if own else None for own in of_step]
    leaves = jax.vmap(derivative, out_axes=axes)(*at)

    def slope_of(own: list[Array]) -> Any:
        of_this = iter(own)
        parts = zip(leaves, of_step, strict=True)
        return jax.tree.unflatten(tree, [next(of_this) if own else a for a, own in parts])

    return [a for a, own in zip(leaves, of_step, strict=True) if own], slope_of


def _depend(jaxpr: Any) -> list[bool]:
    """Return of each result of a program whether it depends on the arguments."""
    found = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if any(v in found for v in equation.invars if isinstance(v, Var)):
            found.update(equation.outvars)
    return [isinstance(v, Var) and v in found for v in jaxpr.outvars]
