"""The diagnostic of the discriminator."""

import pytest
from support.adversarial import (
    Fork,
    Line,
    fork_kl,
    idle,
    line_kl,
    random_params,
    single,
)
from support.helpers import (
    KEY,
    regression,
    slow,
)

from dgp_ppl.inference.guides.implicit._discriminator_gap import discriminator_gap
from dgp_ppl.inference.guides.implicit._guide import Implicit


@pytest.mark.slow
@pytest.mark.parametrize("make", [slow(Line), Fork])
def test_bounds_of_the_kl_are_tight_around_it(make):
    guide = Implicit(idle, generator=make, noise_dim=1)
    params = random_params(guide, *regression(rows=5))
    truth = line_kl(guide, params)[2] if make is Line else fork_kl(guide, params)
    for others, slack in ((30, 0.5), (3000, 0.01)):
        gap = discriminator_gap(KEY, guide, params, num_draws=20_000, num_others=others)
        assert gap.lower - 4 * gap.lower_se < truth < gap.upper + 4 * gap.upper_se
        assert truth - gap.lower < slack + 4 * gap.lower_se
        assert gap.upper - truth < slack + 4 * gap.upper_se


def test_a_gap_of_too_few_draws():
    with pytest.raises(ValueError, match="num_draws is 2, wanted at least 4"):
        discriminator_gap(KEY, Implicit(single), {}, num_draws=2)
    with pytest.raises(ValueError, match="num_others is 0"):
        discriminator_gap(KEY, Implicit(single), {}, num_others=0)
