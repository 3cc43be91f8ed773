"""Decentralized EM: parties that hold different columns of the same rows fit one Gaussian mixture together."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "VerticalGaussianMixture",
    "VerticalMixture",
    "Gaussian",
    "Mixed",
    "VerticalKMeans",
    "DistributedDimensionKMeans",
    "Star",
    "Consensus",
    "Differences",
    "Masked",
    "RunningSums",
    "Failures",
    "Tree",
    "Traffic",
    "Certificate",
    "Repair",
    "Finding",
    "FitWarning",
    "FitConvergenceWarning",
    "UnseenWarning",
    "CollapsedComponentError",
    "save",
    "load",
    "ModelFileError",
    "join",
]

if TYPE_CHECKING:
    from vpem.core.blocks.density import CollapsedComponentError
    from vpem.core.blocks.gaussian import Gaussian
    from vpem.core.blocks.mixed import Mixed
    from vpem.core.decisions.repair import Repair
    from vpem.core.network.consensus import Consensus
    from vpem.core.network.differences import Differences
    from vpem.core.network.failures import Failures
    from vpem.core.network.running import RunningSums
    from vpem.core.network.star import Star
    from vpem.core.network.traffic import Traffic
    from vpem.core.network.tree import Tree
    from vpem.estimators.distributed_kmeans import DistributedDimensionKMeans
    from vpem.estimators.gaussian import VerticalGaussianMixture
    from vpem.estimators.kmeans import VerticalKMeans
    from vpem.estimators.mixture import VerticalMixture
    from vpem.model.category_codes import UnseenWarning
    from vpem.model_format import ModelFileError
    from vpem.models import load, save
    from vpem.privacy.masks import Masked
    from vpem.simulation.certificate import Certificate
    from vpem.studies.joining import join
    from vpem.verdict import Finding, FitConvergenceWarning, FitWarning

# Modules that define the names above. Names are imported on first use: scikit-learn alone takes a second to import.
_HOMES = {
    "VerticalGaussianMixture": "vpem.estimators.gaussian",
    "VerticalMixture": "vpem.estimators.mixture",
    "Gaussian": "vpem.core.blocks.gaussian",
    "Mixed": "vpem.core.blocks.mixed",
    "VerticalKMeans": "vpem.estimators.kmeans",
    "DistributedDimensionKMeans": "vpem.estimators.distributed_kmeans",
    "Star": "vpem.core.network.star",
    "Consensus": "vpem.core.network.consensus",
    "Traffic": "vpem.core.network.traffic",
    "Differences": "vpem.core.network.differences",
    "Masked": "vpem.privacy.masks",
    "RunningSums": "vpem.core.network.running",
    "Failures": "vpem.core.network.failures",
    "Tree": "vpem.core.network.tree",
    "Certificate": "vpem.simulation.certificate",
    "Repair": "vpem.core.decisions.repair",
    "CollapsedComponentError": "vpem.core.blocks.density",
    "save": "vpem.models",
    "load": "vpem.models",
    "ModelFileError": "vpem.model_format",
    "join": "vpem.studies.joining",
    "Finding": "vpem.verdict",
    "FitWarning": "vpem.verdict",
    "FitConvergenceWarning": "vpem.verdict",
    "UnseenWarning": "vpem.model.category_codes",
}
_MODULES = (
    "agents",
    "datasets",
    "estimators",
    "extend",
    "figures",
    "metrics",
    "models",
    "planning",
    "report",
    "studies",
    "study",
    "tables",
)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value
    if name in _MODULES:
        return import_module(f"vpem.{name}")
    raise AttributeError(f"module 'vpem' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
