"""Guides and objectives compare by their arguments."""

import jax.numpy as jnp
import numpy as np
import pytest
from support.helpers import KEY, regression

import dgp_ppl as dgp
from dgp_ppl.models import deep_gp

Z = (np.linspace(-2, 2, 5)[:, None],) * 2
X, Y = (np.asarray(a) for a in regression(rows=24))


class Shifted(dgp.MeanField):
    """A guide with one more argument, which it does not list anywhere."""

    def __init__(self, model, *, shift=0.0, **options):
        super().__init__(model, **options)
        self.shift = shift

    def transport(self, call, replace):
        handovers = super().transport(call, replace)
        one = {n: jnp.ones_like(h.q.loc) for n, h in handovers.items()}
        return {
            n: h._replace(q=h.q.scaled(self.shift * one[n], one[n])) for n, h in handovers.items()
        }


def test_a_subclass_with_one_more_argument_has_a_program_of_its_own():
    """Equality and hash use all constructor arguments, so different guides share no program."""
    x, y = X[:8], Y[:8]
    guides = [Shifted(deep_gp, shift=s) for s in (0.0, 1.0, 1.0)]
    options = {"z": Z, "steps": 2, "progress": False}
    losses = [dgp.fit(KEY, deep_gp, g, x, y, **options).losses for g in guides]
    assert guides[0] != guides[1]
    assert (guides[1] == guides[2], hash(guides[1]) == hash(guides[2])) == (True, True)
    assert np.abs(losses[0] - losses[1]).min() > 0.1
    np.testing.assert_array_equal(losses[1], losses[2])
    assert dgp.MeanField(deep_gp) != guides[0]


def test_what_a_copy_changes_counts_as_an_argument():
    guide = dgp.Diffusion(deep_gp, steps=2)
    guide.setup(X, Y, z=Z)
    assert guide.drawn() != guide
    assert guide.drawn() == guide.drawn()
    assert guide.recording_states() != guide


def test_attributes_set_later_count_as_arguments():
    """A guide or objective with another setting has a program of its own, before and after use."""
    x, y = X[:8], Y[:8]
    options = {"z": Z, "steps": 2, "progress": False}
    run = lambda guide: dgp.fit(KEY, deep_gp, guide, x, y, **options).losses  # noqa: E731
    first, second = dgp.MeanField(deep_gp), dgp.MeanField(deep_gp)
    second.hidden_scale = 0.5
    assert first != second
    at_first, at_second = run(first), run(second)
    assert np.abs(at_first - at_second).min() > 0.1
    first.hidden_scale = 0.5
    assert first == second
    np.testing.assert_array_equal(run(first), at_second)
    loss = dgp.PredictiveELBO()
    loss.beta = 10.0
    assert (loss == dgp.PredictiveELBO(beta=10.0), loss == dgp.PredictiveELBO()) == (True, False)


class Wrapped(dgp.MeanField):
    """A guide whose constructor hides its parameters' names."""

    def __init__(*args, **options):
        self, model, shift = args
        dgp.MeanField.__init__(self, model, **options)
        self.shift = shift


class Hiding(dgp.MeanField):
    """A guide whose arguments the base class does not see."""

    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)


def test_constructors_that_hide_their_arguments():
    guides = [Wrapped(deep_gp, 1.0), Wrapped(deep_gp, 1.0), Wrapped(deep_gp, 2.0)]
    guides += [Hiding(deep_gp), Hiding(deep_gp)]
    for guide in guides:
        guide.setup(X, Y, z=Z)
    assert guides[0] == guides[1] != guides[2]
    assert guides[3] == guides[3] != guides[4]


def test_a_guide_without_the_base_classs_constructor():
    class Bare(dgp.MeanField):
        def __init__(self, model):
            self.model = model

    with pytest.raises(TypeError, match=r"Bare: its __init__ does not call super\(\).__init__"):
        Bare(deep_gp).setup(X, Y, z=Z)


class Weighted(dgp.PredictiveELBO):
    def __init__(self, weight, **options):
        super().__init__(**options)
        self.weight = weight


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (Weighted(1.0), Weighted(weight=1.0), Weighted(2.0)),
        (dgp.ImportanceWeighted(2), dgp.ImportanceWeighted(2, "local"), dgp.ImportanceWeighted(3)),
        (dgp.DiffusionELBO(2), dgp.DiffusionELBO(num_paths=2), dgp.DiffusionELBO(3)),
        (
            dgp.AdversarialELBO(),
            dgp.AdversarialELBO(),
            dgp.AdversarialELBO(certified=True, kl_draws=8),
        ),
        (Weighted(1), Weighted(1), Weighted(True)),
    ],
    ids=lambda o: type(o).__name__,
)
def test_objectives_compare_by_their_arguments(one, same, other):
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
