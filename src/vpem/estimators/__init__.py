"""The scikit-learn face of vpem."""

from vpem.estimators.distributed_kmeans import DistributedDimensionKMeans
from vpem.estimators.kmeans import VerticalKMeans
from vpem.estimators.mixture import VerticalGaussianMixture

__all__ = ["VerticalGaussianMixture", "VerticalKMeans", "DistributedDimensionKMeans"]
