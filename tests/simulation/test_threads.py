"""Tasks in threads: each after those that it needs, none after an error."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vpem.core.network.steps import Plan, Task, one_by_one
from vpem.core.network.sums import Round, Shape
from vpem.simulation.threads import do_tasks


@st.composite
def needs(draw):
    """For each task, which ones before it are needed."""
    n = draw(st.integers(0, 25))
    return [tuple(draw(st.sets(st.integers(0, number - 1), max_size=3))) if number else () for number in range(n)]


@settings(max_examples=40, deadline=None)
@given(needs(), st.integers(1, 4))
def test_each_task_comes_after_those_that_it_needs(after, n_threads):
    begun, ended = [], []

    def work(number):
        begun.append((number, frozenset(ended)))
        time.sleep(1e-4 * (number % 3))
        ended.append(number)

    with ThreadPoolExecutor(n_threads) as threads:
        do_tasks(threads, n_threads, [Task(partial(work, number), own) for number, own in enumerate(after)])
    assert sorted(ended) == list(range(len(after)))
    assert all(set(after[number]) <= before for number, before in begun)


@pytest.mark.parametrize("n_threads", [1, 2, 4])
def test_the_first_error_is_raised_and_nothing_goes_on(n_threads):
    done = []

    def work(number):
        if number in (5, 6):
            raise ValueError(f"task {number}")
        done.append(number)

    tasks = [Task(partial(work, number), () if number < 7 else (5,)) for number in range(40)]
    with ThreadPoolExecutor(n_threads) as threads, pytest.raises(ValueError, match="task 5"):
        do_tasks(threads, n_threads, tasks)
    assert set(range(5)) <= set(done) <= set(range(5)), "what needs it, and all after it, is left alone"
    with pytest.raises(ValueError, match="task 5"):
        one_by_one(tasks, Shape(1, 1))


def test_the_error_is_the_same_with_any_number_of_threads():
    def fail(number):
        raise ValueError(f"task {number}")

    tasks = [Task(partial(time.sleep, 0.05)), Task(partial(fail, 1), (0,)), Task(partial(fail, 2))]
    for n_threads in (1, 2, 3):
        with ThreadPoolExecutor(n_threads) as threads, pytest.raises(ValueError, match="task 1"):
            do_tasks(threads, n_threads, tasks)


def test_nobody_waits_for_others_than_those_it_hears():
    """Two pairs that have nothing to do with each other."""
    idle, values = Round("sum", (), (), True, False), {"kind": "sum", "values": True, "decision": False}
    speak = [Round(receivers=(peer,), senders=(), **values) for peer in (1, 0, 3, 2)]
    hear = [Round(receivers=(), senders=(peer,), **values) for peer in (1, 0, 3, 2)]
    schedules = [[speak[0], idle], [hear[1], idle], [idle, speak[2]], [idle, hear[3]]]
    plan = Plan(schedules)
    found = [(action.number, action.begins, action.step, action.speaks, action.after) for action in plan.actions]
    assert found == [
        (3, True, -1, (), ()),  # the last to be done: what it has in common with others is there for all of them
        (0, True, -1, (0,), (0,)),
        (2, True, -1, (1,), (0,)),
        (1, True, 0, (), (0, 1)),  # begins when it hears
        (3, False, 1, (), (0, 2)),
    ]
