"""A few kills in each part of a study; `make soak` has many."""

import pytest

from network import soak

pytestmark = pytest.mark.network


@pytest.mark.parametrize("part", soak.PARTS)
def test_killed_processes_come_back_to_the_same_numbers(part):
    assert soak.main(4, 5, part)
