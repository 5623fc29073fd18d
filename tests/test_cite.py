"""BibTeX of the papers behind guides, samplers, objectives and models."""

import re
from importlib.resources import files

import pytest

import dgp_ppl as dgp
from dgp_ppl import models

FOUNDED = [
    *(dgp.MeanField, dgp.Decoupled, dgp.GlobalInducing, dgp.Diffusion, dgp.Flow, dgp.Implicit),
    *(dgp.SGHMC, dgp.AdjustedMCLMC, dgp.fit_mcem, dgp.annealed_evidence),
    *(dgp.AdversarialELBO, dgp.PredictiveELBO, dgp.ImportanceWeighted, dgp.check_guide),
    *(models.deep_gp, models.diff_gp, models.gplvm, models.sgpr, models.svgp, models.bnn),
]


def keys(text):
    return set(re.findall(r"^@\w+{(\w+),$", text, re.MULTILINE))


def test_every_method_has_its_papers():
    assert keys(dgp.cite(dgp.Implicit)) == {"yu2019implicit"}
    assert keys(dgp.cite(models.sgpr)) == {"titsias2009variational"}
    assert {"salimbeni2017doubly", "hensman2013gaussian"} <= keys(dgp.cite(dgp.MeanField))
    for method in FOUNDED:
        assert dgp.cite(method)


def test_an_entry_comes_once_and_is_found_by_an_instance():
    guide = dgp.MeanField(models.deep_gp)
    both = dgp.cite(guide, models.deep_gp)
    assert keys(both) == keys(dgp.cite(dgp.MeanField)) | keys(dgp.cite(models.deep_gp))
    assert both.count("@") == len(keys(both))


def test_entries_are_whole_and_used():
    text = files("dgp_ppl").joinpath("references.bib").read_text()
    assert text.count("{") == text.count("}")
    unused = keys(text) - keys(dgp.cite(*FOUNDED, dgp.BlackJAXKernel, dgp.importance_evidence))
    assert not unused


def test_what_has_no_paper():
    with pytest.raises(ValueError, match=r"'Rows' names no paper.*wanted a guide"):
        dgp.cite(dgp.Rows)
