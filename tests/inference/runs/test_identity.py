"""Hashes of traced programs: the same in all processes, for the same program only."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dgp_ppl.inference.runs._identity import digest


def traced(function, *args):
    return digest(jax.make_jaxpr(function)(*(args or [jnp.ones(3)])))


class Scaled:
    """A function of the host."""

    factor = 1.0

    def __init__(self, by):
        self.by = by

    def times(self, x):
        return np.asarray(self.by * x)


class Halved(Scaled):
    """The same method of another class."""

    factor = 0.5


def of_host(function):
    """Return a program that calls a function of the host."""
    return lambda x: jax.pure_callback(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def closed_over(value):
    return lambda x: np.asarray(value * x)


def shifted(x, by):
    return np.asarray(x + by)


def programs(number):
    """Return programs that are the same for the same number."""
    return {
        "literal": lambda x: x * number,
        "constant": lambda x: x * np.arange(3.0) * number,
        "inner program": lambda x: jax.lax.fori_loop(0, 3, lambda _, a: jnp.sin(number * a), x),
        "order": (lambda x: x + (x - number)) if number == 1 else (lambda x: (x - number) + x),
        "closure of a callback": of_host(closed_over(number)),
        "partial as a callback": of_host(functools.partial(shifted, by=number)),
        "method as a callback": of_host(Scaled(number).times),
        "class of a callback": of_host((Scaled if number == 1 else Halved)(1.0).times),
    }


def test_programs_with_the_same_and_with_other_parts():
    first, again, other = ({n: traced(f) for n, f in programs(i).items()} for i in (1, 1, 2))
    assert first == again
    assert [n for n in first if first[n] == other[n]] == []
    assert traced(jnp.sin, jnp.ones(3)) != traced(jnp.sin, jnp.ones(4))


def test_arguments():
    """Arrays and numbers count by value, functions not: they count in the program."""
    same = {"n": 3, "likelihood": functools.partial(shifted, by=1)}, np.ones(2), jax.random.key(0)
    arguments = {"n": 3, "likelihood": functools.partial(shifted, by=2)}, np.ones(2)
    assert digest(same) == digest((*arguments, jax.random.key(0)))
    for other in ((*arguments, jax.random.key(1)), ({**arguments[0], "n": 4}, *same[1:])):
        assert digest(same) != digest(other)
