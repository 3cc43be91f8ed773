"""Checks of the estimators' arguments. Errors name the expected value, the actual value and a remedy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from vpem.core.blocks.density import Density
from vpem.core.blocks.kernels import count_larger
from vpem.core.decisions.initial import HUB_TIES, shared_generator
from vpem.core.decisions.starts import Given
from vpem.core.network.around import default_summation
from vpem.core.network.parties import Network, assign_columns, make_network
from vpem.core.network.summation import Summation
from vpem.core.rows import Table, row_chunks
from vpem.core.settings import ACCELERATIONS, STARTS, Agreement, Settings
from vpem.estimators import joined
from vpem.estimators.family_choice import said_categories
from vpem.estimators.frames import collected, with_nan
from vpem.estimators.refusing import refuse_dates, refuse_words
from vpem.model.category_codes import words_by_number

if TYPE_CHECKING:
    import networkx as nx

Array = NDArray[np.float64]

LARGEST_NUMBER = float(np.finfo(np.float64).max)


def check_count(name: str, value: Any, smallest: int) -> int:
    """Validate a whole number of at least `smallest`."""
    if not isinstance(value, Integral) or isinstance(value, bool | np.bool_) or value < smallest:
        raise ValueError(f"expected {name} to be a whole number, {smallest} or more, got {value!r}")
    return int(value)


def check_non_negative(name: str, value: Any) -> float:
    """Validate a finite number of at least zero."""
    if not isinstance(value, Real) or isinstance(value, bool | np.bool_) or not 0 <= float(value) < math.inf:
        raise ValueError(f"expected {name} to be a finite number, 0 or more, got {value!r}")
    return float(value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Validate one of the given words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"expected {name} to be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


@contextmanager
def unchanged_on_error(estimator: Any) -> Iterator[None]:
    """Restore the estimator's attributes if the block raises an error."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def read_table(estimator: Any, X: Any, *, reset: bool, min_rows: int = 1) -> Table:
    """Read rows into an array, without a copy if possible; return a table that streams its rows unchanged.

    With `reset`, set `n_features_in_` and `feature_names_in_`. Otherwise compare the table with them, and convert
    categories to the codes of the earlier fit.
    """
    table, words = read_values(estimator, X, reset=reset, min_rows=min_rows)
    fitted = getattr(estimator, "_fitted", None)
    return table if reset or fitted is None else fitted.coding.code(table, words, fitted.names)


def read_values(estimator: Any, X: Any, *, reset: bool, min_rows: int = 1) -> tuple[Table, dict[int, list[str]]]:
    """Read a table's own numbers, and the words that its own codes represent, by column; see `read_table`."""
    takes_words = joined.takes_words(estimator)
    X = collected(X)
    refuse_dates(X, takes_words=takes_words)
    if takes_words and not getattr(X, "streams_rows", False) and not joined.is_joined(X) and not issparse(X):
        from vpem.tables import Said, code_words  # takes a while

        said = said_categories(estimator.families, estimator.partition)
        try:
            X = code_words(X, Said(said) if reset else estimator._fitted.word_names)
        except ValueError:
            _check_cells(X)
            raise
    if not reset:
        X = joined.arrange(estimator, X)
    try:
        table = _read_numbers(estimator, X, reset=reset, min_rows=min_rows)
    except (TypeError, ValueError):
        refuse_words(X)
        raise
    names = getattr(estimator, "feature_names_in_", None)
    words = words_by_number(X, names)
    if words and not takes_words:
        name, own = next(iter(X.words.items()))
        raise ValueError(
            f"expected numbers in column {name!r}, got words, such as {own[0]!r}; VerticalMixture takes words as "
            f"categories, and vpem.tables.join(..., ignore=[{name!r}]) leaves the column out"
        )
    if takes_words and not reset and (hasattr(X, "columns") or hasattr(X, "column_names")):
        estimator._fitted.coding.refuse_numbers(table, words, range(table.shape[1]) if names is None else names)
    return table, words


def _check_cells(X: Any) -> None:
    """Raise TypeError for array cells that are containers."""
    for row, cells in enumerate(X.tolist() if isinstance(X, np.ndarray) else ()):
        for column, cell in enumerate(cells):
            if isinstance(cell, Iterable) and not isinstance(cell, str | bytes):
                raise TypeError(
                    f"expected one value in every cell, got {cell!r:.80} in row {row} of column {column}; a cell's "
                    "argument must be a string, a number or a gap (None)"
                )


def _read_numbers(estimator: Any, X: Any, *, reset: bool, min_rows: int) -> Table:
    """Read and validate the table's own numbers."""
    if not getattr(X, "streams_rows", False):
        table: Table = validate_data(
            estimator,
            with_nan(X),
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=min_rows,
            reset=reset,
        )
        # scikit-learn's own check would allocate a mask as large as the table.
        for rows in row_chunks(0, len(table), table.shape[1]):
            if count_larger(np.ascontiguousarray(table[rows]), LARGEST_NUMBER):
                raise ValueError("expected finite numbers or gaps (NaN), got infinity in X")
        return table
    streamed: Table = X
    names = None if X.column_names is None else np.array(X.column_names, dtype=object)
    if len(streamed) < min_rows:
        raise ValueError(f"expected at least {min_rows} rows, got {len(streamed)}")
    if reset:
        estimator.n_features_in_ = streamed.shape[1]
        vars(estimator).pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = names
    elif streamed.shape[1] != estimator.n_features_in_:
        raise ValueError(f"expected {estimator.n_features_in_} columns, as in the fit, got {streamed.shape[1]}")
    elif names is not None and not np.array_equal(names, getattr(estimator, "feature_names_in_", names)):
        raise ValueError(
            f"expected the columns of the fit, {', '.join(estimator.feature_names_in_)}, got {', '.join(names)}"
        )
    return streamed


def check_enough_rows(n_samples: int, name: str, needed: int) -> None:
    """Raise ValueError if there are fewer rows than components."""
    if n_samples < needed:
        raise ValueError(
            f"expected n_samples >= {name}, got n_samples = {n_samples}, {name} = {needed}; "
            f"try a smaller {name} or more rows"
        )


def make_settings(density: Density, n_components: Any, tol: Any, max_iter: Any, accelerate: Any = None) -> Settings:
    """Validate the arguments of a fit from a given start."""
    return Settings(
        density=density,
        n_components=check_count("n_components", n_components, 1),
        tol=check_non_negative("tol", tol),
        max_iter=check_count("max_iter", max_iter, 0),
        accelerate=None if accelerate is None else check_choice("accelerate", accelerate, ACCELERATIONS),
    )


def make_agreement(
    settings: Settings,
    summation: Summation,
    seed: int,
    *,
    hops: Any,
    init_params: Any,
    given: Sequence[Given] = (),
    n_init: Any = 1,
    batch_size: Any = None,
) -> Agreement:
    """Return the agreement that all parties share; validate the arguments."""
    kind = check_choice("init_params", init_params, STARTS)
    return Agreement(
        settings=settings,
        summation=summation,
        seed=seed,
        hops=check_count("hops", hops, 0),
        init_params="given" if given and given[0].is_complete(settings.density) else kind,
        n_init=check_count("n_init", n_init, 1),
        batch_size=None if batch_size is None else check_count("batch_size", batch_size, 1),
    )


def shared_seed(random_state: Any) -> int:
    """Draw the seed from which all parties make their generators."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(np.iinfo(np.int32).max))
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def build_network(
    partition: Any,
    graph: str | nx.Graph,
    hops: int,
    summation: Summation | None,
    n_features: int,
    feature_names: Sequence[str] | None,
    seed: int,
) -> tuple[Network, Summation]:
    """Make the network and the summation from an estimator's arguments."""
    columns = assign_columns(partition, n_features, feature_names)
    network = make_network(columns, graph, hops, shared_generator(seed, HUB_TIES))
    if summation is None:
        summation = default_summation(network)
    if not isinstance(summation, Summation):
        raise TypeError(
            "expected summation to be None, Star(), Tree(), Consensus(...) or another of vpem's summations, got "
            f"{summation!r}"
        )
    summation.check(network)
    return network, summation


def check_weights_init(given: Any, n_components: int) -> Array:
    """Validate initial weights: positive, with sum 1."""
    found = finite_array("weights_init", given, (n_components,))
    if (found < 0).any() or not np.isclose(found.sum(), 1.0):
        raise ValueError(f"expected weights_init that are not negative and add up to 1, got {found}")
    if (found == 0).any():
        raise ValueError("expected weights_init above 0, got a component of weight 0, which EM can never revive")
    weights: Array = found / found.sum()
    return weights


def finite_array(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """Validate an array of finite numbers of a given shape."""
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"expected {name} to be numbers of shape {shape}, got {value!r}") from None
    if found.shape != shape:
        raise ValueError(f"expected {name} of shape {shape}, got shape {found.shape}")
    if not np.isfinite(found).all():
        raise ValueError(f"expected {name} to be finite, got NaN or infinity")
    return found
