"""Figures of what the clusters are: their numbers are the model's, and they show themselves."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from matplotlib.text import Text

import vpem
from fits import judged
from test_own_density import Gamma
from vpem import Finding, VerticalGaussianMixture, VerticalMixture, figures
from vpem.datasets import make_vertical_blobs


def fitted(n_columns, n_components, n_parties=3, **arguments):
    data = make_vertical_blobs(400, n_parties, n_columns // n_parties, n_components, random_state=0)
    frame = pd.DataFrame(data.data, columns=[f"c{number}" for number in range(n_columns)])
    settings = {"partition": data.partition, "random_state": 0, "max_iter": 5, "tol": 10.0, **arguments}
    return VerticalGaussianMixture(n_components, **settings).fit(frame), frame, data.target


@pytest.fixture(scope="module", params=[(3, 2), (3, 10), (132, 2), (132, 10)], ids=str)
def case(request):
    n_columns, n_components = request.param
    return fitted(n_columns, n_components, 3 if n_columns == 3 else 12, reg_covar=0.1)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def inside(figure):
    """Whether all names, numbers and titles lie within the picture."""
    figure._repr_png_()  # decides where things are
    box, size = figure.get_tightbbox(), figure.get_size_inches()
    return box.x0 > -0.05 and box.y0 > -0.05 and box.x1 < size[0] + 0.05 and box.y1 < size[1] + 0.05


def test_every_figure_shows_itself_and_fits_its_page(case):
    model, frame, classes = case
    made = [
        figures.plot_profiles(model),
        figures.plot_importance(model),
        figures.plot_certainty(model, frame),
        figures.plot_confusion(model, frame),
        figures.plot_classes(classes, model.predict(frame)),
        figures.plot_features(model, "c0", 2, frame),
    ]
    for figure in made:
        assert isinstance(figure, Figure)
        assert figure._repr_png_().startswith(b"\x89PNG\r\n")
        assert inside(figure)


def test_profiles_have_the_distances_as_colours_and_the_means_as_numbers(case):
    model, frame, _ = case
    axes = figures.plot_profiles(model).axes[0]
    profile = model.profile().set_index(["component", "column"])
    shown = [text.get_text().split(": ")[-1] for text in axes.get_yticklabels()]
    assert len(shown) == min(40, frame.shape[1])
    [image] = axes.images
    for row, name in enumerate(shown):
        for k in range(len(model.weights_)):
            assert image.get_array()[row, k] == pytest.approx(profile.loc[(k, name), "distance"])
            cell = float(texts(axes)[row * len(model.weights_) + k].replace(",", ""))
            assert cell == pytest.approx(profile.loc[(k, name), "mean"], rel=6e-3, abs=1e-3)
    if frame.shape[1] > 40:
        best = model.importance()["column"][:40].tolist()
        assert shown == best
        assert "40 most informative of 132" in axes.get_title()


def test_bars_are_the_information(case):
    model, *_ = case
    axes = figures.plot_importance(model).axes
    single = all(len(held) == 1 for held in model.partition_.values())
    assert len(axes) == (1 if single else 2)
    for panel, by in zip(axes, ("column", "party"), strict=False):
        expected = model.importance(by=by)["information"][:40]
        np.testing.assert_allclose([bar.get_width() for bar in panel.patches], expected)


def test_certainty_and_confusion_are_the_models():
    model, frame, _ = fitted(6, 3)
    found = model.certainty(frame)
    bars = figures.plot_certainty(model, frame).axes[0].patches
    assert sum(bar.get_height() for bar in bars) == pytest.approx(1)
    np.testing.assert_allclose([bar.get_height() for bar in bars], found.counts.ravel() / 400)
    image = figures.plot_confusion(model, frame).axes[0].images[0]
    np.testing.assert_allclose(image.get_array(), found.confusion)


def test_classes_are_counted():
    axes = figures.plot_classes(["b", "a", "a", "b"], [0, 1, 1, 1]).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
    assert texts(axes) == ["", "2", "1", "1"]


def test_ellipses_are_those_of_the_covariances():
    model, frame, _ = fitted(6, 2, 2)
    dense = model.covariance_matrix()
    for pair in ((0, 1), (0, 5)):
        axes = figures.plot_features(model, *pair, frame).axes[0]
        ellipses = [patch for patch in axes.patches if isinstance(patch, Ellipse)]
        assert len(ellipses) == 4
        for k in range(2):
            covariance = dense[k][np.ix_(pair, pair)]
            angles = np.linspace(0, 2 * np.pi, 50)
            circle = np.array([np.cos(angles), np.sin(angles)])
            own = ellipses[2 * k + 1].get_patch_transform().transform(circle.T) - model.means_[k, list(pair)]
            squared = (own @ np.linalg.inv(covariance) * own).sum(axis=1)
            np.testing.assert_allclose(squared, 4, rtol=1e-6)  # two deviations
        dots = axes.findobj(PathCollection)
        assert max(len(group.get_offsets()) for group in dots) == 400
    with pytest.raises(ValueError, match="expected the name or number of a column, one of c0"):
        figures.plot_features(model, "c0", "c9")
    with pytest.raises(ValueError, match=r"expected the name or number of a column.* got ndarray"):
        figures.plot_features(model, np.zeros((3, 2)), "c0", "c1")


def test_another_density_is_drawn_too():
    X = np.random.default_rng(0).gamma(2.0, 3.0, (200, 4)) + 0.1
    model = VerticalMixture(2, density=Gamma(), partition=[[0, 1], [2, 3]], random_state=0, tol=1.0).fit(X)
    for figure in (figures.plot_profiles(model), figures.plot_features(model, 0, 1), figures.plot_importance(model)):
        assert inside(figure)


def test_matplotlib_comes_with_the_first_figure():
    code = (
        "import sys, vpem.figures as f; assert 'matplotlib' not in sys.modules\n"
        "f.plot_classes([0, 1], [0, 1]); assert 'matplotlib' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Categories, and what colours mean


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    group = rng.integers(3, size=400)
    job = np.where(rng.random(400) < 0.7, np.array(["nurse", "smith", "clerk"])[group], "baker")
    table = pd.DataFrame(
        {
            "job": job,
            "dose": rng.choice([20, 40, 80], size=400),
            "age": rng.normal(30 + 12 * group, 5),
            "income": rng.normal(size=400),
        }
    )
    table.loc[3, "job"] = None
    model = VerticalMixture(3, families={"dose": "categorical"}, partition=[[0, 1], [2, 3]], random_state=0)
    return model.fit(table), table


def dots_of(axes):
    """Offsets and areas of each component's dots: those with an edge."""
    groups = [one for one in axes.findobj(PathCollection) if len(one.get_offsets()) and one.get_linewidths()[0] > 0]
    return [(np.asarray(one.get_offsets()), one.get_sizes()) for one in groups]


@pytest.mark.parametrize("pair", [("job", "age"), ("age", "job"), ("job", "dose")])
@pytest.mark.parametrize("with_rows", [False, True])
def test_categories_have_places_and_no_ellipses(people, pair, with_rows):
    model, table = people
    figure = figures.plot_features(model, *pair, table if with_rows else None)
    assert inside(figure)
    axes, found = figure.axes[0], model.fitted_.profile
    assert not [patch for patch in axes.patches if isinstance(patch, Ellipse)]
    columns = [list(table).index(name) for name in pair]
    for number, (name, axis) in enumerate(zip(pair, (axes.xaxis, axes.yaxis), strict=True)):
        if name in model.categories_:
            assert [text.get_text() for text in axis.get_ticklabels()] == model.categories_[name]
        else:
            # Lines of one and two deviations around the mean, in the direction of the number.
            lines = [one for one in axes.collections if isinstance(one, LineCollection)]
            reached = {tuple(np.round(line[:, number], 6)) for one in lines for line in one.get_segments()}
            mean, deviation = found.means[:, columns[number]], found.deviations[:, columns[number]]
            assert reached == {
                tuple(np.round([mean[k] - size * deviation[k], mean[k] + size * deviation[k]], 6))
                for k in range(3)
                for size in (1, 2)
            }
    for k, (offsets, areas) in enumerate(dots_of(axes)):
        for (x, y), area in zip(offsets, areas, strict=True):
            expected = 220.0
            for place, column in zip((x, y), columns, strict=True):
                if column in found.categories:
                    expected *= found.categories[column][k, round(place)]
                    assert abs(place - round(place)) < 0.35
                else:
                    assert place == pytest.approx(found.means[k, column])
            assert area == pytest.approx(expected)
    rows = [one for one in axes.findobj(PathCollection) if len(one.get_offsets()) >= 399]
    assert len(rows) == with_rows
    if with_rows and pair[0] == "job":
        own = np.asarray(rows[0].get_offsets())[:, 0].round()
        codes = table["job"].dropna().map(model.categories_["job"].index)
        assert own.tolist() == codes.tolist(), "a row lies at its own category, and one without lies nowhere"


def test_many_categories_are_the_most_common():
    rng = np.random.default_rng(0)
    word = rng.choice([f"w{number:02}" for number in range(30)], size=900, p=np.r_[[0.04] * 20, [0.02] * 10])
    table = pd.DataFrame({"word": word, "a": rng.normal(size=900)})
    figure = figures.plot_features(VerticalMixture(2, random_state=0).fit(table), "word", "a", table)
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == [f"w{number:02}" for number in range(20)]
    assert inside(figure)


def test_blue_is_above_everyone_and_orange_below(people):
    model, _ = people
    figure = figures.plot_profiles(model)
    [image] = figure.axes[0].images
    distances = np.asarray(image.get_array())
    red, _, blue, _ = np.moveaxis(image.cmap(image.norm(distances)), -1, 0)
    far = np.abs(distances) > 0.1
    assert (distances[far] < 0).any()
    assert ((blue > red) == (distances > 0))[far].all()
    written = [text.get_text() for axes in figure.axes for text in axes.findobj(Text)]
    assert "blue: above\neveryone" in written
    assert "orange:\nbelow" in written
    # The colours are the report's own.
    style = (Path(vpem.__file__).parent / "report" / "assets" / "page.css").read_text()
    assert f"--positive: {to_hex(image.cmap(1.0))}; --negative: {to_hex(image.cmap(0.0))};" in style


@pytest.mark.parametrize("verdict", ["green", "amber", "not judged"])
def test_how_sure_the_model_is_comes_with_the_verdict(people, verdict):
    findings = {
        "green": [],
        "amber": [Finding("x", "amber", "Something.", "else")],
        "not judged": [Finding("not_judged", "note", "Not.", "")],
    }
    model, table = judged(people[0], findings[verdict]), people[1]
    axes = figures.plot_certainty(model, table).axes[0]
    assert f"{model.certainty(table).sure_share:.1%} of 400 rows have a component above 95%" in axes.get_title()
    assert axes.get_title().endswith(f"right if the model is; verdict on the fit: {verdict}")
    assert axes.get_xlabel() == "largest probability of a component, under the model"
