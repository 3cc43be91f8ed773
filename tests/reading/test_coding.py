"""Categories of a column: which texts are the same one."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from vpem.reading.category_parsing import Coded, to_codes


def coded(values, **arguments):
    found = to_codes(pa.chunked_array([pa.array(values)]), **arguments)
    assert isinstance(found, Coded), found
    return found


@pytest.mark.parametrize(
    "words",
    [
        ["250.0", "250.00", "401.9"],
        ["1.1", "1.10", "1.2"],
        ["1000", "1E3", "2E2"],
        ["1", "1.", "2"],
        ["+1", "1", "2"],
        ["9007199254740992", "9007199254740993"],
        ["01", "1", "2"],
        ["1", "1.0"],
    ],
)
def test_categories_that_are_said_are_as_many_as_their_texts(words):
    found = coded([*words, None], said=True)
    assert found.words == words
    np.testing.assert_array_equal(found.values, [*range(len(words)), np.nan])


@pytest.mark.parametrize("values", [["1.0", "2.0", None], ["1", "2", None]])
def test_whole_numbers_beside_gaps_stay_numbers(values):
    """As pandas writes them."""
    found = coded(values, said=True)
    assert found.words is None
    np.testing.assert_array_equal(found.values, [1, 2, np.nan])
    written = pd.Series([1, None, 2]).to_csv(index=False, header=False).split()
    assert written == ["1.0", '""', "2.0"]


def test_categories_keep_their_fraction():
    """New rows of a fit that has words, all of which could be ids."""
    assert coded(["250.0", "250.00"], has_words=True).words == ["250.0", "250.00"]
