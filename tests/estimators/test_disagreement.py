"""The reported disagreement is that of the roots in the fit, and not that of sums made afterwards."""

import warnings

import networkx as nx
import numpy as np
import pytest

import vpem
from studies import make_study, run
from vpem import Consensus, Differences, Failures, FitWarning, RunningSums, Tree, VerticalGaussianMixture
from vpem.core.decisions.starts import Given
from vpem.estimators.progress import Progress
from vpem.simulation.certificate import certify
from vpem.simulation.fit import fit as simulate
from vpem.simulation.model import make_problem


def compare(found):
    """The largest difference, its mean over rows, and the share of rows with different labels."""
    found = np.array(found)
    rows = [float((own.max(axis=0) - own.min(axis=0)).max()) for own in found.transpose(1, 0, 2)]
    is_split = [len(set(own.argmax(axis=1))) > 1 for own in found.transpose(1, 0, 2)]
    return max(rows), np.mean(rows), np.mean(is_split)


@pytest.mark.parametrize(
    "summation",
    [Consensus("auto"), RunningSums(12, failures=Failures(0.3, burst=4)), Consensus(5, failures=Failures(0.2))],
    ids=["auto", "running", "failures"],
)
@pytest.mark.parametrize("arguments", [{}, {"batch_size": 9, "n_init": 2}], ids=["plain", "batches"])
def test_it_is_what_agents_have_in_their_last_sums(summation, arguments):
    X = overlapping(6)[::10]
    agents, network = make_study(nx.path_graph(6), X, summation=summation, **arguments)
    agreement = agents[0].identity.agreement
    problem = make_problem(X, network, summation, agreement.settings.density)
    simulated = simulate(problem, agreement, [Given()] * 6, Progress(0, None))
    real = run(agents).agents
    largest, mean, split = compare([real[hub.root].model.responsibilities for hub in network.hubs])
    assert largest > 1e-4, "so that there is something to report"
    assert simulated.disagreement.largest == pytest.approx(largest, rel=1e-6)
    assert simulated.disagreement.total / len(X) == pytest.approx(mean, rel=1e-6)
    assert simulated.disagreement.n_split / len(X) == split


def fitted(X, summation, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return VerticalGaussianMixture(3, random_state=0, graph="path", summation=summation, **arguments).fit(X)


def overlapping(n_parties):
    X = np.random.default_rng(1).normal(size=(300, n_parties))
    X[:100] += 0.3
    X[100:200] -= 0.3
    return X


@pytest.mark.parametrize("engine", ["simulation", "agents"])
def test_sums_that_continue_do_not_report_fresh_ones(engine):
    X = overlapping(12)
    model = fitted(X, Consensus("auto"), engine=engine, init_params="random_from_data")
    problem = make_problem(X, model.fitted_.network, Consensus("auto"), model.fitted_.mixture.density)
    fresh = certify(problem, model.fitted_.mixture, model.check_arguments()._settings())
    assert model.disagreement_ == model.certificate_.disagreement > 5 * fresh.disagreement
    assert model.certificate_.mean_disagreement > 5 * fresh.mean_disagreement
    assert model.certificate_.gain == fresh.gain
    early = fitted(X, Consensus("auto"), engine=engine, init_params="random_from_data", max_iter=3)
    (finding,) = (one for one in early.verdict_ if one.code == "parties_disagree")
    assert finding.remedy.startswith("a smaller tol")


def test_an_outage_in_the_last_sum_is_reported():
    # A link that fails for whole sums leaves no sum exact, however many rounds were planned.
    X, partition = overlapping(4), {"bank": [0], "shop": [1], "clinic": [2], "school": [3]}
    never = Failures(listed=[(None, "bank", "shop")])
    with pytest.warns(FitWarning, match="parties disagree"):
        model = VerticalGaussianMixture(
            3, random_state=0, graph="ring", partition=partition, summation=RunningSums(failures=never), tol=1e-2,
            init_params="random_from_data",
        ).fit(X)  # fmt: skip
    (finding,) = (one for one in model.verdict_ if one.code == "parties_disagree")
    assert "more rounds, if links fail for longer" in finding.remedy
    assert vpem.verdict.colour(model.verdict_) == "red"


def test_where_all_roots_have_the_same_there_is_none():
    for summation in (Tree(), Differences(Tree())):
        model = fitted(overlapping(3), summation, max_iter=3)
        assert model.disagreement_ == model.certificate_.mean_disagreement == model.certificate_.split == 0
