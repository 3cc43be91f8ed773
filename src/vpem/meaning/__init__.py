"""Interpretation of a fitted mixture's components: pure functions of weights, density, blocks and their columns.

They use the protocol of a density alone, so they hold for every family of columns.
"""

from vpem.meaning.certainty import Certainty, make_certainty, typicality
from vpem.meaning.imputing import impute_rows
from vpem.meaning.information import Information, block_information, column_information, entropy, whole_information
from vpem.meaning.model_comparison import Comparison, compare_models, judged, verdict_of
from vpem.meaning.pooling import pooling_gains
from vpem.meaning.profiles import Profile, make_profile
from vpem.words import as_bytes, as_count, short_number

__all__ = [
    "Certainty",
    "Comparison",
    "Information",
    "Profile",
    "as_bytes",
    "as_count",
    "block_information",
    "column_information",
    "compare_models",
    "entropy",
    "impute_rows",
    "judged",
    "make_certainty",
    "make_profile",
    "pooling_gains",
    "short_number",
    "typicality",
    "verdict_of",
    "whole_information",
]
