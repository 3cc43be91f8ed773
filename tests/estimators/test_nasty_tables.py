"""Tables that make components collapse, starve or lose digits, held to naive arithmetic in long double."""

import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from oracles import block_m_step, dense_covariances, precise_log_density
from vpem import CollapsedComponentError, Consensus, VerticalGaussianMixture

pytestmark = pytest.mark.processors

EPSILON = np.finfo(float).eps
PARTIES = [[0, 1], [2, 3]]
# An eigenvalue of a correlation matrix below this is rounding: of covariances in double precision less than 1e-14 is
# left, of responsibilities that are nearly 0 or 1 a little more.
SINGULAR = 1e-12


def nasty_tables():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)) + 3 * rng.integers(2, size=(120, 1))
    duplicates, constant, collinear, outlier, half, single = (X.copy() for _ in range(6))
    duplicates[:60] = duplicates[0]
    constant[:, 3] = 5.0
    collinear[:, 1] = 2 * collinear[:, 0]
    outlier[0] = 1e9
    half[rng.random(X.shape) < 0.5] = np.nan
    half[np.isnan(half).all(axis=1)] = X[0]  # every row counts
    single[1:, 2] = np.nan
    return {
        "duplicates": duplicates,
        "a constant column": constant,
        "three distinct rows": np.repeat(X[:3], 20, axis=0),
        "one distinct row": np.ones((50, 4)),
        "scales": X * 10.0 ** np.array([-12, -4, 4, 12]),
        "tiny": X * 1e-12,
        "huge": X * 1e12,
        "an offset": X + 1e12,
        "binary": (X > 1.5).astype(float),
        "collinear": collinear,
        "an outlier": outlier,
        "half missing": half,
        "one value in a column": single,
    }


TABLES = nasty_tables()


def fit(X, **arguments):
    """A fit, or the error in its place, and the number of iterations that it has seen."""
    seen = []
    model = VerticalGaussianMixture(
        6, partition=PARTIES, random_state=0, callback=lambda *_: seen.append(1), **arguments
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            return model.fit(X), len(seen)
        except CollapsedComponentError as error:
            return error, len(seen)


def log_joint(X, model):
    """(n_rows, n_components), naively; raises where a covariance is not positive definite."""
    return precise_log_density(X, model.means_, model.covariance_matrix()) + np.log(model.weights_)


def digits(model):
    """Relative error that rounding may leave in a log-density of the model.

    A Cholesky factor in double precision has an error of a few units in the last place times the condition of the
    matrix, rows and columns scaled.
    """
    conditions = []
    for matrix in model.covariance_matrix():
        deviations = np.sqrt(np.diag(matrix))
        conditions.append(np.linalg.cond(matrix / deviations / deviations[:, None]))
    return 1e-13 + 16 * EPSILON * max(conditions)


def naive_step(X, model, rule):
    """Weights, means and block-diagonal covariances of one EM step from a model, without any care."""
    joint = log_joint(X, model)
    responsibilities = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    counts = responsibilities.sum(axis=0)
    if not np.isnan(X).any():
        X = X.astype(np.longdouble)
    else:
        responsibilities = responsibilities.astype(float)
    blocks = []
    for held, own in zip(PARTIES, matrices(model), strict=True):
        before = model.means_[:, held], own
        blocks.append(block_m_step(X[:, held], responsibilities, *rule, before))
    means = np.hstack([found for found, _ in blocks])
    return counts, means, [found for _, found in blocks]


def matrices(model):
    """Each block's (n_components, width, width)."""
    dense = model.covariance_matrix()
    return [dense[:, held][:, :, held] for held in PARTIES]


def is_singular(matrix, X, covariance_type):
    """Whether a covariance of these columns is singular to rounding."""
    matrix = np.asarray(matrix, dtype=float)
    variances = np.diag(matrix)
    # Values are rounded to EPSILON, and so are their deviations from a mean; vpem takes 16 of those as its limit.
    if (variances <= np.square(32 * EPSILON * np.nanmax(np.abs(X), axis=0))).any():
        return True
    if covariance_type in ("diag", "spherical"):
        return False
    deviations = np.sqrt(variances)
    return np.linalg.eigvalsh(matrix / deviations / deviations[:, None])[0] < SINGULAR


def overall_covariance(X, covariance_type, reg_covar):
    """Of columns, as one component of all rows would have it; a gap counts as the mean."""
    X = X.astype(np.longdouble)
    deviations = np.nan_to_num(X - np.nanmean(X, axis=0))
    counts = (~np.isnan(X)).sum(axis=0)
    covariance = deviations.T @ deviations / np.sqrt(np.outer(counts, counts))
    if covariance_type == "diag":
        covariance = np.diag(np.diag(covariance))
    elif covariance_type == "spherical":
        covariance = np.eye(len(covariance)) * np.trace(covariance) / len(covariance)
    return covariance + reg_covar * np.eye(len(covariance))


def check_error(error, n_seen, X, arguments):
    """What an error says is so: the covariance that it names is singular to rounding."""
    kind, reg_covar = arguments["covariance_type"], arguments["reg_covar"]
    own = X[:, PARTIES[error.party]]
    if error.component is None:
        assert is_singular(overall_covariance(own, kind, reg_covar), own, kind)
        return
    assert n_seen > 3, "it has been restarted three times"
    before, _ = fit(X, **{**arguments, "max_iter": n_seen - 1})  # the last one seen ends in the collapse
    assert before.repairs_, "what was restarted is told"
    _, _, blocks = naive_step(X, before, (kind, reg_covar))
    assert is_singular(blocks[error.party][error.component], own, kind)


def check_model(model, X, arguments):
    """What a model says is so: densities, likelihoods and the certificate are those of its own parameters."""
    np.testing.assert_allclose(model.weights_.sum(), 1.0, rtol=1e-12)
    joint, tolerance = log_joint(X, model), digits(model)
    expected = logsumexp(joint, axis=1)
    size = np.maximum(1.0, np.abs(expected))
    assert (np.abs(model.score_samples(X) - expected) / size).max() < tolerance
    assert model.score(X) == pytest.approx(float(expected.mean()), rel=tolerance, abs=tolerance * float(size.mean()))
    # A log-density that is off by as much moves a responsibility by as much.
    responsibilities = np.exp(joint - expected[:, None])
    assert np.abs(model.predict_proba(X) - responsibilities).max() < 4 * tolerance * size.max()
    if not model.repairs_ and arguments["reg_covar"] == 0:
        assert expected.mean() > model.lower_bound_ - tolerance * size.mean(), "an iteration never loses"


def check_iteration(model, X, arguments):
    """The last lower bound is the likelihood before the last iteration; the certificate is a naive step's gain."""
    before, _ = fit(X, **{**arguments, "max_iter": model.n_iter_ - 1})
    likelihoods = logsumexp(log_joint(X, before), axis=1)
    size = max(1.0, float(np.abs(likelihoods).mean()))
    assert abs(model.lower_bound_ - likelihoods.mean()) < digits(before) * size
    counts, means, blocks = naive_step(X, model, (arguments["covariance_type"], arguments["reg_covar"]))
    if counts.min() < 1e-3:
        return  # a starved component keeps what it had, which adds nothing
    if not np.isfinite(model.certificate_.gain):
        pairs = [(X[:, held], matrix) for held, own in zip(PARTIES, blocks, strict=True) for matrix in own]
        assert any(is_singular(matrix, own, arguments["covariance_type"]) for own, matrix in pairs)
        return
    stepped = precise_log_density(X, means, dense_covariances(PARTIES, 4, blocks)) + np.log(counts / counts.sum())
    here = logsumexp(log_joint(X, model), axis=1).mean()
    gain = float(logsumexp(stepped, axis=1).mean() - here)
    # Sums of squares lose some digits. Means are rounded too; in units of a deviation, the slope of the likelihood
    # where a step gains so much is about the root of twice the gain.
    deviations = np.sqrt(np.diagonal(model.covariance_matrix(), axis1=1, axis2=2))
    rounded = float((EPSILON * np.abs(model.means_) / deviations).max())
    tolerance = 1e-9 + 100 * digits(model) * size + rounded * (np.sqrt(2 * abs(gain)) + rounded)
    assert model.certificate_.gain == pytest.approx(gain, abs=tolerance)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("reg_covar", [1e-6, 0.0])
def test_nasty_tables_end_in_a_model_that_is_right_or_in_an_error_that_is(name, covariance_type, reg_covar):
    X = TABLES[name]
    for graph, batch_size in (("star", None), ("path", 13)):
        arguments = {
            "graph": graph,
            "summation": None if graph == "star" else Consensus(4),
            "batch_size": batch_size,
            "covariance_type": covariance_type,
            "reg_covar": reg_covar,
            "max_iter": 30,
        }
        found, n_seen = fit(X, **arguments)
        if isinstance(found, CollapsedComponentError):
            assert reg_covar == 0
            check_error(found, n_seen, X, arguments)
            continue
        check_model(found, X, arguments)
        if batch_size is None:
            check_iteration(found, X, arguments)
