"""A refusal that repeats is told with its count; a wait is told at growing intervals."""

from itertools import pairwise

from vpem.transports.outcomes import MOST_KINDS, MOST_SECONDS, Problem, Repeats, Waiting, Waits
from vpem.transports.presence import Awaited

LEASE = 2.0
AWAITED = [Awaited("east", 3.0)]


def test_a_problem_is_told_once_and_later_with_its_count():
    repeats = Repeats()
    told = [one for second in range(600) for one in repeats.take(f"10.0.0.1:{50000 + second}: no", float(second))]
    assert told[0] == Problem("10.0.0.1:50000: no", 1)
    assert [one.count for one in told] == [1, 61, 181, 421], "each pause is twice the one before"
    assert repeats.take("another", 600.0) == [Problem("another", 1)]


def test_problems_of_any_number_of_strangers_take_no_more_memory():
    repeats = Repeats()
    for number in range(2 * MOST_KINDS):
        repeats.take("x" * number, 0.0)
    assert len(repeats._counts) == MOST_KINDS


def test_a_wait_is_told_after_a_lease_at_growing_intervals_and_ends():
    waits, told = Waits(LEASE, 0.0), []
    for tenth in range(1, 4000):
        told += [(tenth / 10, one) for one in waits.look(AWAITED, tenth / 10)]
    times = [time for time, _ in told]
    assert times[:4] == [2.0, 4.0, 8.0, 16.0]
    assert max(later - earlier for earlier, later in pairwise(times)) <= MOST_SECONDS
    assert all(one == Waiting(tuple(AWAITED)) for _, one in told)
    waits.move(400.0)
    assert waits.look([], 400.0) == [Waiting(())]
    assert waits.look([], 400.1) == []
    assert waits.look(AWAITED, 401.0) == []
    assert waits.look(AWAITED, 402.0) == [Waiting(tuple(AWAITED))]
