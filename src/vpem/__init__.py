"""Decentralized EM: parties that hold different columns of the same rows fit one Gaussian mixture together."""

from vpem.core.blocks.density import CollapsedComponentError
from vpem.core.blocks.gaussian import Gaussian
from vpem.core.decisions.repair import Repair
from vpem.core.network.consensus import Consensus
from vpem.core.network.star import Star
from vpem.core.network.traffic import Traffic
from vpem.estimators import DistributedDimensionKMeans, VerticalGaussianMixture, VerticalKMeans, VerticalMixture
from vpem.simulation.em import Certificate
from vpem.verdict import Finding, FitConvergenceWarning, FitWarning

__version__ = "0.1.0"

# After the version, which they write down.
from vpem.model_format import ModelFileError
from vpem.models import load, save

__all__ = [
    "VerticalGaussianMixture",
    "VerticalMixture",
    "Gaussian",
    "VerticalKMeans",
    "DistributedDimensionKMeans",
    "Star",
    "Consensus",
    "Traffic",
    "Certificate",
    "Repair",
    "Finding",
    "FitWarning",
    "FitConvergenceWarning",
    "CollapsedComponentError",
    "save",
    "load",
    "ModelFileError",
]
