"""A model in a notebook, models side by side, and known classes against components."""

from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vpem import VerticalGaussianMixture
from vpem.datasets import make_vertical_blobs
from vpem.meaning import compare_models, short_number
from vpem.metrics import clustering_accuracy, compare_labels
from vpem.verdict import colour

DATA = make_vertical_blobs(300, 2, 2, 3, random_state=0)
FRAME = pd.DataFrame(DATA.data, columns=["income", "debt", "<b>visits</b>", "spent"])


def fitted(n_components=3, **arguments):
    return VerticalGaussianMixture(n_components, partition=DATA.partition, random_state=0, **arguments).fit(FRAME)


class Tags(HTMLParser):
    """Checks that tags close, and keeps the text of the summary."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words = [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data + " "


# In a notebook


def test_a_fitted_model_shows_its_summary_above_scikit_learns():
    model = fitted()
    shown = model._repr_html_()
    summary = shown[: shown.index("<style>")]
    words = Tags(summary).words
    assert "3 components, 4 columns, 2 parties" in words
    assert "converged" in words
    assert f"{model.lower_bound_:.4f}" in words
    assert "messages" in words
    assert "<b>visits</b>" not in summary, "names are text"
    top = model.importance()["column"][0]
    assert f"{top} (" in words
    profile = model.profile()
    for k, weight in enumerate(model.weights_):
        own = profile[profile["component"] == k]
        first = own.loc[own["distance"].abs().idxmax()]
        assert f"{weight:.1%}" in words
        assert f"{first['column']} {short_number(first['mean'])} ({first['distance']:+.1f})" in words
    assert model._repr_mimebundle_()["text/html"].startswith(summary), "what Jupyter asks for"
    assert "sk-top-container" in shown


def test_without_a_fit_it_is_scikit_learns():
    shown = VerticalGaussianMixture(2)._repr_html_()
    assert "vpem-model" not in shown
    assert "sk-top-container" in shown
    with config_context(display="text"):
        assert not hasattr(fitted(), "_repr_html_")
    assert "vpem-model" not in make_pipeline(StandardScaler(), VerticalGaussianMixture(2))._repr_html_()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_odd_fits_have_a_summary_too():
    assert "did not converge" in fitted(max_iter=1, tol=0.0)._repr_html_()
    assert "everyone" in fitted(1)._repr_html_()
    start = fitted(2, max_iter=0)
    words = Tags(start._repr_html_().split("<style>")[0]).words
    assert f"after 0 iterations, log-likelihood {start.log_likelihood_:.4f} per row" in words
    assert "and 3 more components" in fitted(15, reg_covar=0.1, max_iter=2)._repr_html_()


# Side by side


def test_models_are_compared_on_the_same_rows():
    models = {"three": fitted(3), "two": fitted(2), "again": fitted(3, graph="ring")}
    values = DATA.data.copy()
    values[0], values[1, 2] = np.nan, np.nan
    found = compare_models(models, [values] * 3)
    assert found.names == list(models)
    assert found.n_rows == 299
    assert found.same_columns
    frame = pd.DataFrame(values[1:], columns=FRAME.columns)
    for (name, model), own in zip(models.items(), found.facts, strict=True):
        assert own["log_likelihood"] == pytest.approx(model.score(frame)), name
        assert own["bic"] == pytest.approx(model.bic(frame))
        assert own["aic"] == pytest.approx(model.aic(frame))
        assert own["bytes"] == model.traffic_.bytes
        for other_name, other in models.items():
            expected = adjusted_rand_score(model.predict(frame), other.predict(frame))
            place = found.names.index(name), found.names.index(other_name)
            assert found.agreement[place] == pytest.approx(expected)


def test_without_rows_only_the_fits_are_compared():
    found = compare_models({"a": fitted(3), "b": fitted(2)})
    assert found.agreement is None
    assert [own["bic"] for own in found.facts] == [None, None]
    assert found.facts[0]["fit_log_likelihood"] == fitted(3).log_likelihood_
    assert found.facts[0]["verdict"] == colour(fitted(3).verdict_)
    assert found.trajectories[1] == fitted(2).lower_bounds_


def test_other_rows_are_refused():
    models = {"a": fitted(3), "b": fitted(2)}
    with pytest.raises(ValueError, match="the same rows for each of 2 models"):
        compare_models(models, [DATA.data, DATA.data[:5]])
    with pytest.raises(ValueError, match="expected rows of which every model has some value"):
        compare_models(models, [np.full((3, 4), np.nan)] * 2)


# Known classes


def test_classes_are_compared_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    classes, labels = rng.choice(["a", "b", "c"], 200), rng.integers(0, 4, 200)
    found = compare_labels(classes, labels, 6)
    assert found.classes == ["a", "b", "c"]
    assert found.confusion.shape == (3, 6)
    for i, name in enumerate(found.classes):
        for k in range(6):
            assert found.confusion[i, k] == sum(
                c == name and one == k for c, one in zip(classes, labels, strict=True)
            )
    assert found.adjusted_rand == adjusted_rand_score(classes, labels)
    assert found.mutual_information == normalized_mutual_info_score(classes, labels)
    assert found.accuracy == clustering_accuracy(classes, labels)
    with pytest.raises(ValueError, match="expected a class for each label"):
        compare_labels(["a"], [0, 1])
