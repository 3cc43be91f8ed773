"""VerticalMixture: VP-EM with families of columns or a user-defined density, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, DensityMixin

from vpem.core.blocks.density import Density
from vpem.core.blocks.mixed import Mixed
from vpem.core.network.parties import Network
from vpem.core.network.summation import Summation
from vpem.core.rows import Table
from vpem.core.settings import Settings
from vpem.estimators import checks
from vpem.estimators.family_choice import find_families
from vpem.estimators.fitting import FittingMixture
from vpem.estimators.growing import block_structures, grow_mixture, grow_stream, grown_families, party_families
from vpem.estimators.joined import Source
from vpem.estimators.summary import model_html
from vpem.model.fitted import Fitted

Array = NDArray[np.float64]


class VerticalMixture(FittingMixture, DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Mixture for parties that each hold some columns of the same rows, with any density of the columns.

    Within a component, the blocks of columns are independent, and each has the distribution that `density` describes.
    `VerticalGaussianMixture` is the special case of Gaussian columns; its documentation describes the joint fit.

    Parameters
    ----------
    n_components : int, default=1
    families : "auto", str or dict, default="auto"
        Distributions of the columns within a component: "gaussian", "categorical", "counts", "poisson", "zeros"
        (amounts that are often zero), "zeros:gaussian" or "angles:24" (with the period). One for all columns; or a
        dict from columns, by name or number, or from parties. Columns that are not in the dict are "auto": each party
        decides from the types and values of its own columns. A party's Gaussian columns have a joint covariance.
    covariance_type, shrinkage, reg_covar, standardize :
        Settings of the Gaussian columns; see `VerticalGaussianMixture`.
    smoothing : float, default=1.0
        Number of pseudo-rows, with all categories equally frequent, that are added to each component, so that no
        category has probability zero.
    density : Density or None, default=None
        User-defined density, in place of `families` and their settings; `vpem.extend` describes how to write one.
    partition : list, dict or None, default=None
        Columns of each party; for this parameter and those below, see `VerticalGaussianMixture`.
    graph : {"star", "ring", "complete", "path"} or networkx.Graph, default="star"
    hops : int, default=0
    summation : Star, Tree, Differences, Masked, Consensus, RunningSums or None, default=None
    tol : float, default=1e-3
    batch_size : int or None, default=None
    accelerate : "squarem" or None, default=None
    max_iter : int, default=100
    n_init : int, default=1
    init_params : {"kmeans", "k-means++", "labels", "random", "random_from_data"}, default="kmeans"
        Method of the initial division of the rows. The density chooses the initial parameters of each component from
        the mean of its rows.
    weights_init : array-like of shape (n_components,), optional
    blocks_init : list of dicts, optional
        One entry for each block b, in the order of ``hubs_[b].columns``: some or all of its parameters, with the
        names and shapes of ``density.shapes(n_components, n_columns)``.
    random_state : int, RandomState or None, default=None
    warm_start : bool, default=False
    engine : {"simulation", "agents"}, default="simulation"
    verbose : int, default=0
    callback : callable or None, default=None

    Attributes
    ----------
    weights_ : array of shape (n_components,)
    hub_weights_ : array of shape (n_hubs, n_components)
    means_ : array of shape (n_components, n_features)
        Expected values; for words, of their positions in `categories_`.
    parameters_ : list of dicts
        Parameters of each block, by the names that the density gives them.
    families_ : dict
        Column to its family with parameters, such as "categorical:7"; not with `density`.
    categories_ : dict
        Column with categories to their names, in the order of their codes.
    partition_, on_, graph_, hubs_, lower_bound_, lower_bounds_, n_iter_, converged_, disagreement_ :
        As in `VerticalGaussianMixture`, like those below.
    log_likelihood_, verdict_, certificate_, repairs_, traffic_, n_features_in_, feature_names_in_ :
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        families: Any = "auto",
        covariance_type: str = "full",
        shrinkage: float | str | None = None,
        reg_covar: float = 1e-6,
        standardize: bool = False,
        smoothing: float = 1.0,
        density: Density | None = None,
        partition: Any = None,
        graph: Any = "star",
        hops: int = 0,
        summation: Summation | None = None,
        tol: float = 1e-3,
        batch_size: int | None = None,
        accelerate: str | None = None,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "kmeans",
        weights_init: ArrayLike | None = None,
        blocks_init: Sequence[Mapping[str, ArrayLike]] | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        engine: str = "simulation",
        verbose: int = 0,
        callback: Any = None,
    ):
        self.n_components = n_components
        self.families = families
        self.covariance_type = covariance_type
        self.shrinkage = shrinkage
        self.reg_covar = reg_covar
        self.standardize = standardize
        self.smoothing = smoothing
        self.density = density
        self.partition = partition
        self.graph = graph
        self.hops = hops
        self.summation = summation
        self.tol = tol
        self.batch_size = batch_size
        self.accelerate = accelerate
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.blocks_init = blocks_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.engine = engine
        self.verbose = verbose
        self.callback = callback

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _html_repr(self) -> str:
        """HTML for notebooks: a summary of the model, if it is fitted, above scikit-learn's list of parameters."""
        summary = "" if self._fitted is None else model_html(self._fitted, type(self).__name__)
        return summary + str(super()._html_repr())

    def _show(self, fitted: Fitted) -> None:
        shapes = fitted.mixture.density.shapes(1, 1)
        self.parameters_ = [{name: block.arrays[name] for name in shapes} for block in fitted.mixture.blocks]

    def _density(self) -> Density:
        if self.density is None:
            return self._mixed(())
        if not isinstance(self.density, Density):
            raise TypeError(f"expected density to be a Density, such as Gaussian(), got {self.density!r}")
        return self.density

    # Families

    @property
    def _has_families(self) -> bool:
        return self.density is None

    @property
    def families_(self) -> dict[str | int, str]:
        """Column to its family."""
        if self._fitted is None or self._fitted.families is None:
            raise AttributeError("expected a model that was fitted with families, got another")
        return dict(zip(self._keys(), self._fitted.families, strict=True))

    @property
    def categories_(self) -> dict[str | int, list[str]]:
        """Column with categories to their names."""
        labels = {} if self._fitted is None else self._fitted.coding.labels
        keys = self._keys()
        return {keys[column]: list(own) for column, own in sorted(labels.items())}

    def _keys(self) -> list[Any]:
        names = getattr(self, "feature_names_in_", None)
        return list(range(self.n_features_in_)) if names is None else [str(name) for name in names]

    def _mixed(self, families: tuple[tuple[Hashable, ...], ...]) -> Mixed:
        return Mixed(
            families=families,
            covariance_type=self.covariance_type,
            shrinkage=self.shrinkage,
            reg_covar=self.reg_covar,
            smoothing=self.smoothing,
        )

    def _with_families(
        self,
        table: Table,
        words: Mapping[int, Sequence[str]],
        network: Network,
        settings: Settings,
        source: Source,
        before: Fitted | None,
    ) -> tuple[Table, Settings, dict[str, Any], Fitted | None]:
        if not self._has_families:
            return table, settings, {}, before
        parties = network.named_columns()
        if before is None:
            names = getattr(self, "feature_names_in_", None)
            found = source.families or find_families(self.families, table, words, parties, names)
            texts, coding = found.texts, found.coding
            table = coding.code(table, words, names)
            density = self._mixed(party_families(texts, parties))
        else:
            assert before.families is not None, "the last fit had families too"
            texts, coding = grown_families(before.families, table, self._keys()), before.coding
            density = self._mixed(party_families(texts, parties))
            if texts != before.families:
                structures = block_structures(density, network)
                stream = None if before.stream is None else grow_stream(before.stream, structures)
                before = replace(before, mixture=grow_mixture(before.mixture, structures, density), stream=stream)
        return table, replace(settings, density=density), {"families": texts, "coding": coding}, before

    def _given_arrays(self, network: Network, settings: Settings) -> list[dict[str, Array]]:
        given = [{} for _ in network.hubs] if self.blocks_init is None else self.blocks_init
        if isinstance(given, str | Mapping) or not hasattr(given, "__len__") or len(given) != len(network.hubs):
            raise ValueError(
                f"expected blocks_init to be a list with a dict for each of the {len(network.hubs)} blocks (in the "
                f"order of hubs_), got {given!r}"
            )
        found, named = [], network.named_hubs()
        for number, (own, columns) in enumerate(zip(given, network.block_columns, strict=True)):
            shapes = settings.density.block_shapes(settings.n_components, len(columns), named[number].members)
            if not isinstance(own, Mapping) or not set(own) <= set(shapes):
                raise ValueError(
                    f"expected blocks_init[{number}] to be a dict with some of {', '.join(shapes)}, got {own!r}"
                )
            checked = {
                name: checks.finite_array(f"blocks_init[{number}][{name!r}]", value, shapes[name])
                for name, value in own.items()
            }
            found.append({**settings.density.fixed_arrays(shapes, named[number].members), **checked} if own else {})
        return found
