"""Findings from facts: each rule fires where it should, and only there."""

import math

import numpy as np
import pytest

from vpem.verdict import (
    BlockFacts,
    CodeFacts,
    DependenceFacts,
    Facts,
    Finding,
    before_the_run,
    best_at_edge,
    colour,
    in_program,
    in_study,
    in_words,
    judge,
)


def block(**changes):
    usual = {
        "party": "bank",
        "columns": ["age", "income"],
        "variances": np.ones((3, 2)),
        "overall": np.full(2, 4.0),
        "added": 1e-6,
        "is_matrix": True,
    }
    return BlockFacts(**{**usual, **changes})


def narrow(*, is_one_value, added=1e-6):
    """Two components that are far narrower than their column, in which a few values are far away."""
    shape = (3, 2)
    variances = np.array([[1.0, 0.5], [1.0, 1e-6], [1.0, 1e-6]]) * 1e-3 ** (added == 0)
    scale = np.array([1.0, 1.018e6])
    flags = np.full(shape, is_one_value)
    return block(variances=variances, overall=np.ones(2), scale=scale, is_one_value=flags, added=added)


def facts(**changes):
    """A fit with nothing wrong."""
    usual = {
        "n_components": 3,
        "tol": 1e-3,
        "max_iter": 100,
        "lower_bounds": [-5.0, -4.2, -4.0, -3.9995],
        "converged": True,
        "gain": 1e-4,
        "effective_rows": (100.0, 80.0, 20.0),
        "blocks": [block()],
    }
    return Facts(**{**usual, **changes})


def found(**changes):
    return {finding.code: finding.severity for finding in judge(facts(**changes))}


@pytest.mark.parametrize(("n_left_out", "expected"), [(0, {}), (5, "note"), (121, "amber")])
def test_rows_that_masked_sums_leave_out(n_left_out, expected):
    given = {"n_held": 303, "n_left_out": n_left_out, "least_holders": 3}
    assert found(**given) == ({"rows_left_out": expected} if n_left_out else {})
    if n_left_out == 121:
        [finding] = judge(facts(**given))
        assert "121 of 303 rows (40%)" in finding.sentence
        assert "the other 182" in finding.sentence
        assert "Masked(accept=('rows of two parties are plain to both',))" in finding.remedy
        assert 'accept = "rows of two parties are plain to both"' in in_study(finding).remedy
        assert "--sum exact" in in_program(finding).remedy
        [already] = judge(facts(**{**given, "least_holders": 2}))
        assert "accept" not in already.remedy


def test_nothing_is_wrong():
    assert judge(facts()) == []
    assert colour([]) == "green"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"split": 0.04}, {"parties_disagree": "red"}),
        ({"mean_disagreement": 0.2}, {"parties_disagree": "red"}),
        ({"split": 0.005, "mean_disagreement": 0.001}, {"parties_disagree": "amber"}),
        ({"split": 0.0005, "mean_disagreement": 0.001}, {}),
        ({"error_factor": 0.69}, {"sum_error": "red"}),
        ({"error_factor": 0.01}, {"sum_error": "amber"}),
        ({"error_factor": 1e-6}, {}),
        ({"error_factor": None}, {}),
        ({"converged": False}, {"not_converged": "amber"}),
        ({"converged": False, "gain": 0.5}, {"not_converged": "red"}),
        ({"gain": 0.5}, {"gain": "red"}),
        ({"gain": 0.005}, {"gain": "amber"}),
        ({"gain": 0.04, "tol": 0.5}, {"gain": "amber"}),
        ({"gain": 0.005, "tol": 0.5}, {}),
        ({"gain": -0.5}, {}),
        ({"gain": math.inf}, {"collapse_ahead": "red"}),
        ({"gain": None, "effective_rows": ()}, {}),
        ({"max_iter": 0, "lower_bounds": [], "gain": 9.0, "converged": False}, {"at_start": "note"}),
        ({"effective_rows": (100.0, 80.0, 2.0)}, {"few_rows": "red"}),
        ({"effective_rows": (100.0, 80.0, 5.0)}, {"few_rows": "amber"}),
        ({"effective_rows": (100.0, 80.0, 2.0), "blocks": [block(is_shrunk=True)]}, {"few_rows": "note"}),
        ({"effective_rows": (100.0, 80.0, 2.0), "blocks": [block(is_matrix=False)]}, {}),
        ({"effective_rows": (100.0, 80.0, 2.0), "blocks": [block(is_shared=True)]}, {}),
        ({"effective_rows": (1.0, 80.0, 40.0), "blocks": []}, {"one_row": "red"}),
        ({"lower_bounds": [-4.0, -4.0]}, {"never_left_start": "note"}),
        ({"lower_bounds": [-4.0, -4.0], "is_start_found": False}, {}),
        ({"lower_bounds": [-4.0, -4.0], "n_components": 1}, {}),
        (
            {"lower_bounds": [-4.0, -4.0], "effective_rows": (2.0, 80.0, 40.0)},
            {"few_rows": "red", "never_left_start": "amber"},
        ),
        ({"start_bounds": (-4.0, -4.5, -4.6)}, {"starts_apart": "amber"}),
        ({"start_bounds": (-4.0, -4.6, -4.001)}, {}),
        ({"start_bounds": (-4.0, -math.inf)}, {}),
        ({"start_bounds": (-4.0, -4.5), "start_agreement": (1.0, 0.98)}, {"starts_apart": "note"}),
        ({"start_bounds": (-4.0, -4.5), "start_agreement": (1.0, 0.9)}, {"starts_apart": "amber"}),
        ({"start_bounds": (-4.0, -4.001, -4.5), "start_agreement": (1.0, 1.0, 0.99)}, {}),
        ({"start_bounds": (-4.0, -4.001, -4.2), "start_agreement": (1.0, 0.99, 0.2)}, {"other_ends": "note"}),
        ({"start_bounds": (-4.001, -4.0, -4.002), "start_agreement": (0.4, 1.0, 0.3)}, {"unstable": "amber"}),
        ({"fewer_by_bic": 2, "fewer_by_icl": 1}, {"too_many_components": "amber"}),
        ({"fewer_by_icl": 1}, {"overlapping": "amber"}),
        ({"fewer_by_icl": 2}, {"overlapping": "note"}),
        ({"lumped": (0, 2)}, {"too_few_components": "amber"}),
        ({"row_names": ("customer",)}, {"row_names": "amber"}),
        ({"twins": (("age", "years"),)}, {"twins": "amber"}),
        ({"blocks": [block(variances=np.array([[1.0, 1e-6]] * 3))]}, {"one_value": "red"}),
        ({"blocks": [block(variances=np.array([[1.0, 1e-12]] * 3), added=0.0)]}, {"one_value": "red"}),
        ({"blocks": [narrow(is_one_value=True)]}, {"one_value": "red"}),
        ({"blocks": [narrow(is_one_value=False)]}, {"narrow": "red"}),
        ({"blocks": [narrow(is_one_value=False, added=0.0)]}, {}),
        ({"codes": [CodeFacts("age", -999.0, 0.03)]}, {"codes": "amber"}),
        ({"dependence": DependenceFacts(1.96, 0.99, "age", "years")}, {"dependence": "amber"}),
        ({"dependence": DependenceFacts(0.8, 0.9, "age", "years")}, {"dependence": "note"}),
        ({"dependence": DependenceFacts(0.3, 0.6, "age", "years")}, {}),
        ({"unrelated": ("bank", "shop")}, {"unrelated": "note"}),
        ({"unrelated": ("bank", "shop"), "is_structured": True}, {"unrelated": "amber"}),
        ({"blocks": [block(overall=np.array([4.0, 1e-8]))]}, {"scale": "red"}),
        ({"blocks": [block(overall=np.array([4.0, 8e-6]))]}, {"scale": "amber"}),
        ({"blocks": [block(overall=np.array([4.0, 0.0]))]}, {"constant": "note"}),
    ],
)
def test_each_rule(changes, expected):
    assert found(**changes) == expected


def test_the_worst_comes_first_and_sets_the_colour():
    several = judge(facts(lower_bounds=[-4.0, -4.0], split=0.5, start_bounds=(-4.0, -9.0)))
    assert [finding.severity for finding in several] == ["red", "amber", "note"]
    assert colour(several) == "red"
    assert colour(several[1:]) == "amber"
    assert colour(several[2:]) == "green"
    assert in_words(several).count("Try:") == 2


def test_columns_and_rounds_are_named():
    many = block(columns=list("abcdef"), variances=np.full((3, 6), 1e-6), overall=np.ones(6))
    (finding,) = judge(facts(blocks=[many], effective_rows=()))
    assert "columns a, b, c, d and 2 more" in finding.sentence
    assert "up to 3 of 3 components" in finding.sentence
    (finding,) = before_the_run(0.69, 3777)
    assert "69" in finding.sentence
    assert "rounds=3777" in finding.remedy
    assert "exact" in before_the_run(0.69, None)[0].remedy
    assert before_the_run(0.0, None) == before_the_run(None, None) == []


def test_amounts_are_told():
    (one,) = judge(facts(blocks=[narrow(is_one_value=False)]))
    assert "column income (1,018, of all rows 1.018e+06)" in one.sentence
    assert "one value" not in one.sentence
    (one,) = judge(facts(dependence=DependenceFacts(1.96, -0.99, "age", "years")))
    assert "age and years by a correlation of -0.990" in one.sentence
    assert "about 1.96 nats per row" in one.sentence
    (one,) = judge(facts(codes=[CodeFacts("age", -999.0, 0.03)]))
    assert "-999 in column age (3.0%) of the rows." in one.sentence
    (one,) = judge(facts(unrelated=["bank", "shop"], is_structured=True))
    assert "between the columns of bank, shop and those of the other parties" in one.sentence


def test_amber_tells_how_alike_the_starts_are():
    (one,) = judge(facts(start_bounds=(-4.0, -4.5, -4.6), start_agreement=(1.0, 0.11, 0.13)))
    (other,) = judge(facts(start_bounds=(-4.0, -4.5, -4.6), start_agreement=(1.0, 0.88, 0.90)))
    assert "the best start and the others is 0.12 (median; lowest 0.11" in one.sentence
    assert "the best start and the others is 0.89 (median; lowest 0.88" in other.sentence


@pytest.mark.parametrize(
    ("changes", "code", "program", "study"),
    [
        ({"start_bounds": (-4.0, -4.5)}, "starts_apart", "--starts 8, or another --components", "starts = 8, or"),
        (
            {"effective_rows": (100.0, 80.0, 2.0)},
            "few_rows",
            "--shrinkage auto, --covariance tied, --covariance diag, or fewer components",
            'shrinkage = "auto", covariance = "tied", covariance = "diag", or fewer components',
        ),
        ({"blocks": [block(overall=np.array([4.0, 1e-8]))]}, "scale", "--standardize, columns", "standardize = true"),
        (
            {"blocks": [block(variances=np.array([[1.0, 1e-6]] * 3))]},
            "one_value",
            "--family auto for columns of few values",
            'families = "auto" for columns of few values',
        ),
        ({"converged": False}, "not_converged", "a larger --max-iter or --tol, or another --init", "max_iter or tol"),
        ({"split": 0.04, "rounds_needed": 30}, "parties_disagree", "or --graph star", 'or links = "star"'),
        (
            {"split": 0.04, "rounds_needed": 1030},
            "parties_disagree",
            "--rounds 1030, which is the default; a graph with more links; or --graph star",
            "rounds = 1030, which is the default; a graph with more links",
        ),
        ({"fewer_by_bic": 2}, "too_many_components", "--components 2", "components = 2"),
        (
            {"dependence": DependenceFacts(1.96, 0.99, "age", "years")},
            "dependence",
            "or pool them: --hops 1,",
            "or pool them: hops = 1,",
        ),
    ],
)
def test_remedies_are_in_the_words_of_whoever_asked(changes, code, program, study):
    (finding,) = (one for one in judge(facts(**changes)) if one.code == code)
    assert program in in_program(finding).remedy
    assert study in in_study(finding).remedy
    assert "_" not in in_program(finding).remedy
    assert "=" not in in_program(finding).remedy


def test_words_of_a_sentence_are_no_options():
    [finding] = before_the_run(0.3, 35)
    assert in_program(finding).sentence == in_study(finding).sentence == finding.sentence


@pytest.mark.parametrize(
    ("sizes", "best", "remedy"),
    [
        (range(1, 11), 10, "n_components=1..20"),
        (range(3, 7), 3, "n_components=1..6"),
        (range(1, 11), 1, None),
        (range(1, 11), 4, None),
        ([5], 5, None),
    ],
)
def test_a_best_number_at_the_edge(sizes, best, remedy):
    findings = best_at_edge(sizes, best)
    assert [finding.remedy for finding in findings] == ([] if remedy is None else [remedy])
    assert all(isinstance(finding, Finding) and finding.severity == "amber" for finding in findings)


def test_codes_name_the_option_that_makes_them_gaps():
    [found] = judge(facts(codes=[CodeFacts("age", -999.0, 0.02)]))
    assert "NaN" in found.remedy
    assert "--gaps NA,-999" in in_program(found).remedy
    assert "gaps of [form]" in in_study(found).remedy
