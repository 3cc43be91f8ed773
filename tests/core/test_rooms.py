"""Memory of large arrays that is used again: never while a view of it is left, and only in a fit."""

import gc
from collections import deque

import networkx as nx
import numpy as np
import pytest

import vpem
from studies import make_study, run
from vpem import Differences, Star, Tree, VerticalGaussianMixture
from vpem.core import rooms


@pytest.fixture(autouse=True)
def nothing_else_at_work(monkeypatch):
    """Agents of other tests may be."""
    monkeypatch.setattr(rooms, "_users", {})
    monkeypatch.setattr(rooms, "_free", deque(maxlen=rooms.MOST_FREE))


def test_a_room_is_used_again_when_nothing_of_its_array_is_left():
    with rooms.rooms_wanted():
        one = rooms.room_for(1000, 300)
        where, part = one.ctypes.data, one[5:7].T
        del one
        other = rooms.room_for(300_000)
        assert not np.shares_memory(part, other)
        del part
        again = rooms.room_for(300_000, 1)
        assert again.ctypes.data == where
        assert again.flags.writeable
        assert again.flags.c_contiguous
        assert not np.shares_memory(other, again)


def test_few_rooms_are_kept_and_only_of_large_arrays():
    with rooms.rooms_wanted():
        arrays = [rooms.room_for(200_000) for _ in range(2 * rooms.MOST_FREE)]
        small = rooms.room_for(10)
        del arrays, small
        assert len(rooms._free) == rooms.MOST_FREE
        assert rooms.room_for(400_000).shape == (400_000,), "of another size"
    assert len(rooms._free) == 0


def test_rooms_are_kept_until_the_last_user_is_done_or_gone():
    one, other = rooms._User(), rooms._User()
    for user in (one, other, one):
        rooms.keep_rooms(user)
    array, later = rooms.room_for(200_000), rooms.room_for(200_000)
    del array
    rooms.forget_rooms(one)
    rooms.forget_rooms(one)
    assert len(rooms._free) == 1
    del other, user
    assert len(rooms._free) == 0
    del later
    assert len(rooms._free) == 0, "an array that outlives its fit"
    with pytest.raises(KeyboardInterrupt), rooms.rooms_wanted():
        raise KeyboardInterrupt
    assert not rooms._users


def test_nothing_is_left_of_a_fit(monkeypatch):
    """In the simulation, and with agents, whose model and last sums live on; each has sums of more than 1 MiB."""
    X = np.random.default_rng(0).normal(size=(70_000, 6))
    X[:30_000] += 4
    keep, at_work = rooms._keep, []

    def listen(room):
        at_work.append(bool(rooms._users))
        keep(room)

    monkeypatch.setattr(rooms, "_keep", listen)
    more = {"init_params": "random", "max_iter": 2}
    model = VerticalGaussianMixture(
        2, partition={"a": [0], "b": [1, 2]}, graph="star", summation=Differences(Star()), random_state=0, **more
    )
    with pytest.warns(vpem.FitWarning):
        model.fit(X[:, :3])
    model.predict(X[:, :3])
    assert not rooms._free
    assert True in at_work, "rooms are used"
    at_work.clear()
    net = run(make_study(nx.path_graph(3), X=X, summation=Differences(Tree()), **more)[0])
    assert all(agent.is_done for agent in net.agents.values())
    assert not rooms._users
    del net, model
    gc.collect()
    assert True in at_work
    assert False in at_work, "some arrays live longer than the fit"
    assert not rooms._free
