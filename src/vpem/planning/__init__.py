"""Traffic, time and memory of a fit, computed or bounded before the run."""

from vpem.core.network.parties import make_network
from vpem.planning.estimates import Estimate, Line, Range, choices, estimate
from vpem.planning.planner import Study, planned_traffic
from vpem.planning.quantities import parse_bandwidth, parse_latency, parse_range
from vpem.planning.sum_comparison import Plan, Spectrum, plan
from vpem.planning.table_size import TableSize, gzipped_share

__all__ = [
    "plan",
    "Plan",
    "Spectrum",
    "Study",
    "Line",
    "Estimate",
    "Range",
    "TableSize",
    "choices",
    "estimate",
    "planned_traffic",
    "gzipped_share",
    "make_network",
    "parse_bandwidth",
    "parse_latency",
    "parse_range",
]
