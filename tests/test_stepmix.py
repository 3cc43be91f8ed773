"""StepMix as an oracle: categories, Gaussian columns and both, with gaps, from the same start."""

import numpy as np
import pytest

from vpem import VerticalMixture
from vpem.core.blocks.mixed import Mixed

stepmix = pytest.importorskip("stepmix", reason="pip install stepmix==3.0.0")

N_CLASSES = 3
KINDS = {
    "categorical": ["categorical:3", "categorical:2", "categorical:5", "categorical:3", "categorical:4"],
    "gaussian": ["gaussian"] * 5,
    "mixed": ["gaussian", "categorical:2", "categorical:5", "gaussian", "categorical:4"],
}
SPLITS = {"one party": [[0, 1, 2, 3, 4]], "five parties": [[0], [1], [2], [3], [4]]}


def draw(texts, gaps):
    """A table of three classes, and responsibilities to start from."""
    rng = np.random.default_rng(2)
    labels = rng.integers(N_CLASSES, size=600)
    columns = []
    for text in texts:
        if text == "gaussian":
            columns.append(rng.normal(2.0 * rng.permutation(N_CLASSES)[labels], 1.0))
        else:
            n_values = int(text.split(":")[1])
            shares = rng.dirichlet(np.full(n_values, 0.7), size=N_CLASSES)
            columns.append(
                (rng.random(600)[:, None] > np.cumsum(shares, axis=1)[labels]).sum(axis=1).clip(0, n_values - 1)
            )
    X = np.stack(columns, axis=1).astype(float)
    for column, text in enumerate(texts):  # every category occurs
        if text != "gaussian":
            n_values = int(text.split(":")[1])
            X[:n_values, column] = np.arange(n_values)
    if gaps:
        X[np.random.default_rng(1).random(X.shape) < 0.15] = np.nan
        X[10:14] = np.nan
        X[10:14, 0] = 1.0  # StepMix has no rows without any value
    soft = rng.dirichlet(np.ones(N_CLASSES), size=600) * 0.5 + 0.5 * np.eye(N_CLASSES)[labels]
    return X, soft


def by_stepmix(X, texts, soft, gaps, max_iter):
    """A fit by StepMix from given responsibilities: log-likelihood per row, and responsibilities."""
    end = "_nan" if gaps else ""
    kinds = {"gaussian": f"gaussian_diag{end}", "categorical": f"categorical{end}"}
    about, columns, frame = {}, [], []
    for kind, model in kinds.items():
        own = [column for column, text in enumerate(texts) if text.startswith(kind)]
        if own:
            about[kind] = {"model": model, "n_columns": len(own)}
            if kind == "categorical":
                sizes = [int(texts[column].split(":")[1]) for column in own]
                about[kind] |= {"max_n_outcomes": max(sizes), "total_outcomes": sum(sizes)}
            elif not gaps:
                about[kind] |= {"reg_covar": 0.0}
            columns += own
    frame = X[:, columns]

    class Started(stepmix.StepMix):
        """From given responsibilities."""

        def _initialize_parameters(self, X, random_state):
            self.log_resp_ = np.log(soft)
            self.weights_ = soft.mean(axis=0)
            self._initialize_parameters_measurement(X, random_state)

    model = Started(N_CLASSES, measurement=about, max_iter=max_iter, abs_tol=0.0, rel_tol=0.0, progress_bar=0)
    with np.errstate(all="ignore"), pytest.warns(UserWarning, match="did not converge"):
        model.fit(frame)
    scores, log_responsibilities = model._e_step(frame)
    return float(scores), np.exp(log_responsibilities)


def by_vpem(X, texts, soft, split, max_iter, **arguments):
    """The same by parties."""
    families = tuple((party, *(texts[column] for column in held)) for party, held in enumerate(split))
    density = Mixed(families=families, covariance_type="diag", reg_covar=0.0, smoothing=0.0)
    blocks = []
    for own, held in zip(families, split, strict=True):
        alone = Mixed(families=(own,), covariance_type="diag", reg_covar=0.0, smoothing=0.0)
        start = first_block(alone, X[:, held], own[0])
        there = ~np.isnan(X[:, held])
        # A column by itself, as StepMix does: gaps are left out, not filled in.
        block, _ = alone.m_step(
            observed_statistics(alone, X[:, held], soft, start, there), start, columns_of(X[:, held])
        )
        blocks.append({name: block.arrays[name] for name in ("means", "covariances", "others")})
    model = VerticalMixture(
        N_CLASSES,
        density=density,
        partition=split,
        weights_init=soft.mean(axis=0),
        blocks_init=blocks,
        max_iter=max_iter,
        tol=0.0,
        **arguments,
    )
    with pytest.warns(UserWarning, match="did not converge"):
        model.fit(X)
    return model


def columns_of(X):
    from vpem.core.blocks.arrays import Columns

    return Columns(
        party=0,
        counts=(~np.isnan(X)).sum(axis=0),
        means=np.nanmean(X, axis=0),
        variances=np.nanvar(X, axis=0),
        largest=np.nanmax(np.abs(X), axis=0),
        has_gaps=np.isnan(X).any(axis=0),
    )


def first_block(density, X, party):
    from dataclasses import replace

    columns = replace(columns_of(X), families=density.families_of([party]))
    return density.start(np.repeat(np.nanmean(X, axis=0)[None], N_CLASSES, axis=0), density.first(columns))


def observed_statistics(density, X, soft, start, there):
    """Statistics of what is there, each Gaussian column by itself."""
    from vpem.core.blocks.arrays import Statistics
    from vpem.core.blocks.structure import Structure

    found = density.collect(X.T, soft.T, start).arrays
    chosen = Structure.of(start).gaussian
    if not len(chosen):
        return Statistics(**found)
    x, there = np.nan_to_num(X[:, chosen]), there[:, chosen]
    counts = soft.T @ there
    means = soft.T @ x / counts
    squares = np.stack([(soft[:, [k]] * there * (x - means[k]) ** 2).sum(axis=0) for k in range(N_CLASSES)])
    return Statistics(**{**found, "counts": np.ones(N_CLASSES), "means": means, "scatters": squares / counts})


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_stepmix_finds_the_same(kind, gaps, split):
    texts = KINDS[kind]
    X, soft = draw(texts, gaps)
    # With gaps, one party fills in what StepMix leaves out: the way differs, the maximum is the same.
    max_iter = 600 if gaps and split == "one party" and kind != "categorical" else 25
    expected, responsibilities = by_stepmix(X, texts, soft, gaps, max_iter)
    model = by_vpem(X, texts, soft, SPLITS[split], max_iter)
    assert model.score(X) == pytest.approx(expected, abs=1e-8)
    np.testing.assert_allclose(model.predict_proba(X), responsibilities, atol=1e-8)
