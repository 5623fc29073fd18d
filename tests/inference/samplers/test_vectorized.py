"""Every kernel of NumPyro as a kernel of several chains."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import AIES, ESS, HMCECS, MCMC, NUTS, SA, BarkerMH, DiscreteHMCGibbs, MixedHMC
from numpyro.infer.hmc import HMC
from support.helpers import KEY, slow
from support.mcmc_runs import X, Y, short, slope

from dgp_ppl._errors import DataError
from dgp_ppl._static_key import Keyed
from dgp_ppl.inference.runs._identity import digest
from dgp_ppl.inference.samplers._mcmc import run_mcmc
from dgp_ppl.inference.samplers._microcanonical import AdjustedMCLMC
from dgp_ppl.inference.samplers._vectorized import plain_settings


def switched(x, y):
    """A regression whose slope an unknown switch doubles."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    b = numpyro.sample("b", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal((1 + b) * x @ w, 2.0), obs=y)


def subsampled(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("data", len(y), subsample_size=10) as rows:
        numpyro.sample("y", dist.Normal(x[rows] @ w, 0.3), obs=y[rows])


KERNELS = {
    "discrete": lambda: DiscreteHMCGibbs(HMC(switched, num_steps=3, trajectory_length=None)),
    "mixed": lambda: MixedHMC(HMC(switched, trajectory_length=1.2), num_discrete_updates=2),
    "subsampling": lambda: HMCECS(NUTS(subsampled), num_blocks=2),
    "barker": lambda: BarkerMH(slope),
    "sample adaptive": lambda: SA(slope),
    "stretch": lambda: AIES(slope, moves={AIES.StretchMove(): 1.0}),
    "slice": lambda: ESS(slope),
}


@pytest.mark.parametrize("name", ["stretch", *(slow(n) for n in KERNELS if n != "stretch")])
def test_any_kernel(name, x64):
    """NumPyro's `MCMC` with the same key has the same draws."""
    kernel, x, y = KERNELS[name], X.astype(float), Y.astype(float)
    ensemble = kernel().is_ensemble_kernel
    sizes = {"num_warmup": 30, "num_samples": 20, "num_chains": 8 if ensemble else 2}
    mcmc = MCMC(
        kernel(), chain_method="vectorized" if ensemble else "sequential", progress_bar=False,
        **sizes,
    )  # fmt: skip
    mcmc.run(KEY, x, y)
    chains = run_mcmc(KEY, kernel(), x, y, progress=False, **sizes)
    wanted = mcmc.get_samples(group_by_chain=True)
    assert set(chains.samples) == set(wanted)
    for site, draws in wanted.items():
        np.testing.assert_allclose(chains.samples[site], draws, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:run_mcmc. these draws:UserWarning")  # 20 steps adapt little
@pytest.mark.parametrize("name", ["discrete", "stretch", "slice"])
def test_any_kernel_goes_on(name, tmp_path):
    """A run resumes from a folder and from a state. An ensemble's fields are repeated per chain."""
    fields = {"discrete": "block_states.1.accept_prob", "stretch": "inner_state.accept_prob"}
    field = fields.get(name, "inner_state.i")
    sizes = {"num_warmup": 20, "num_chains": 8, "extra_fields": (field,), "progress": False}
    run = lambda **more: run_mcmc(KEY, KERNELS[name](), X, Y, **(sizes | more))  # noqa: E731
    whole = run(num_samples=30)
    assert whole.fields[field].shape == (8, 30)
    for samples in (10, 30):
        found = run(num_samples=samples, checkpoint=tmp_path, every=10)
    second = run(num_samples=20, num_warmup=0, start=run(num_samples=10).state)
    np.testing.assert_array_equal(whole.samples["w"], found.samples["w"])
    np.testing.assert_array_equal(whole.samples["w"][:, 10:], second.samples["w"])


def test_parts_of_fields():
    """Nested fields are named with dots, as in NumPyro's `MCMC`."""
    found = short(HMC(slope), num_chains=2, extra_fields=("adapt_state.step_size", "z.w"))
    assert found.fields["adapt_state.step_size"].shape == (2, 2)
    assert found.fields["z.w"].shape == (2, 2, 3)


FIXED = {"step_size": 0.05, "trajectory_length": 1.0, "adapt_step_size": False}
WITH_OPTION = {
    "trajectory": (lambda **o: HMC(slope, **o), {"trajectory_length": 3.0}),
    "acceptance": (lambda **o: AdjustedMCLMC(slope, **o), {"target_accept_prob": 0.8}),
    "adaptation": (lambda **o: BarkerMH(slope, **o), {"adapt_mass_matrix": False}),
    "masses": (lambda **o: NUTS(slope, **o), {"inverse_mass_matrix": np.ones(4)}),
    "blocks": (lambda **o: HMCECS(NUTS(slope), **o), {"num_blocks": 3}),
    "inner kernel": (lambda **o: HMCECS(NUTS(slope, **o)), {"max_tree_depth": 4}),
    "tuple": (lambda **o: DiscreteHMCGibbs(HMC(slope, **o)), {"step_size": 0.1}),
    "weights": (lambda **o: AIES(slope, **o), {"moves": {AIES.StretchMove(): 0.2}}),
}


@pytest.mark.parametrize("name", WITH_OPTION)
def test_a_kernel_is_known_by_its_options(name):
    kernel, option = WITH_OPTION[name]
    one, same, other = (digest(plain_settings(kernel(**o))) for o in ({}, {}, option))
    assert one == same != other
    assert Keyed(kernel()) != Keyed(kernel(**option))
    assert name == "weights" or Keyed(kernel()) == Keyed(kernel())  # AIES has functions of its own


def test_a_folder_of_a_kernel_with_other_options(tmp_path):
    """They count where the state holds them, and the program does not."""
    run = lambda **options: short(HMC(slope, **FIXED | options), checkpoint=tmp_path)  # noqa: E731
    np.testing.assert_array_equal(run().samples["w"], run().samples["w"])
    masses = np.array([1.0, 1.0, 1.0, 2.0])
    for option in {"trajectory_length": 3.0}, {"inverse_mass_matrix": masses}:
        with pytest.raises(DataError, match=r"holds another run: different (start|program)"):
            run(**option)
