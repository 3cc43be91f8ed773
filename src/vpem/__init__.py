"""Decentralized EM: parties that hold different columns of the same rows fit one Gaussian mixture together."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vpem.summations import BUILT_IN

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vpem.core.blocks.density import CollapsedComponentError as CollapsedComponentError
    from vpem.core.blocks.gaussian import Gaussian as Gaussian
    from vpem.core.blocks.mixed import Mixed as Mixed
    from vpem.core.decisions.repair import Repair as Repair
    from vpem.core.network.consensus import Consensus as Consensus
    from vpem.core.network.differences import Differences as Differences
    from vpem.core.network.failures import Failures as Failures
    from vpem.core.network.running_sums import RunningSums as RunningSums
    from vpem.core.network.star import Star as Star
    from vpem.core.network.traffic import Traffic as Traffic
    from vpem.core.network.tree import Tree as Tree
    from vpem.estimators.distributed_kmeans import DistributedDimensionKMeans as DistributedDimensionKMeans
    from vpem.estimators.gaussian_mixture import VerticalGaussianMixture as VerticalGaussianMixture
    from vpem.estimators.kmeans import VerticalKMeans as VerticalKMeans
    from vpem.estimators.mixture import VerticalMixture as VerticalMixture
    from vpem.model.category_codes import UnseenWarning as UnseenWarning
    from vpem.model_format import ModelFileError as ModelFileError
    from vpem.models import load as load
    from vpem.models import save as save
    from vpem.privacy.masks import Masked as Masked
    from vpem.simulation.certificate import Certificate as Certificate
    from vpem.studies.joining import join as join
    from vpem.verdict import Finding as Finding
    from vpem.verdict import FitConvergenceWarning as FitConvergenceWarning
    from vpem.verdict import FitWarning as FitWarning

# Modules that define the names above. Names are imported on first use: scikit-learn alone takes a second to import.
_HOMES = {
    "VerticalGaussianMixture": "vpem.estimators.gaussian_mixture",
    "VerticalMixture": "vpem.estimators.mixture",
    "Gaussian": "vpem.core.blocks.gaussian",
    "Mixed": "vpem.core.blocks.mixed",
    "VerticalKMeans": "vpem.estimators.kmeans",
    "DistributedDimensionKMeans": "vpem.estimators.distributed_kmeans",
    "Traffic": "vpem.core.network.traffic",
    **{one.kind: one.module for one in BUILT_IN.values()},
    "Failures": "vpem.core.network.failures",
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
__all__ = list(_HOMES)
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
