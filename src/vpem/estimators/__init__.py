"""The scikit-learn estimators of vpem."""

from vpem.estimators.distributed_kmeans import DistributedDimensionKMeans
from vpem.estimators.gaussian_mixture import VerticalGaussianMixture, from_fitted
from vpem.estimators.kmeans import VerticalKMeans
from vpem.estimators.mixture import VerticalMixture

__all__ = [
    "VerticalGaussianMixture",
    "VerticalMixture",
    "VerticalKMeans",
    "DistributedDimensionKMeans",
    "from_fitted",
]
