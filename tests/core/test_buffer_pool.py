"""Memory of large arrays that is used again: never while a view of it is left, and only in a fit."""

import gc

import networkx as nx
import numpy as np
import pytest

import vpem
from studies import make_study, run
from vpem import Differences, Star, Tree, VerticalGaussianMixture
from vpem.core.buffer_pool import MOST_FREE, NO_POOL, BufferPool


class User:
    """Whoever uses a pool."""


def test_a_buffer_is_used_again_when_nothing_of_its_array_is_left():
    pool, user = BufferPool(), User()
    with pool.in_use(user):
        one = pool.array(1000, 300)
        where, part = one.ctypes.data, one[5:7].T
        del one
        other = pool.array(300_000)
        assert not np.shares_memory(part, other)
        del part
        again = pool.array(300_000, 1)
        assert again.ctypes.data == where
        assert again.flags.writeable
        assert again.flags.c_contiguous
        assert not np.shares_memory(other, again)


def test_few_buffers_are_kept_and_only_of_large_arrays():
    pool, user = BufferPool(), User()
    with pool.in_use(user):
        arrays = [pool.array(200_000) for _ in range(2 * MOST_FREE)]
        small = pool.array(10)
        del arrays, small
        assert len(pool._free) == MOST_FREE
        assert pool.array(400_000).shape == (400_000,), "of another size"
    assert len(pool._free) == 0


def test_buffers_are_kept_until_the_last_user_is_done_or_gone():
    one, other, pool = User(), User(), BufferPool()
    for user in (one, other, one):
        pool.open(user)
    array, later = pool.array(200_000), pool.array(200_000)
    del array
    pool.close(one)
    pool.close(one)
    assert len(pool._free) == 1
    del other, user
    assert len(pool._free) == 0
    del later
    assert len(pool._free) == 0, "an array that outlives its fit"
    with pytest.raises(KeyboardInterrupt), pool.in_use(one):
        raise KeyboardInterrupt
    assert not pool._users
    assert not NO_POOL._users


def test_nothing_is_left_of_a_fit(monkeypatch):
    """In the simulation, and with agents, whose model and last sums live on; each has sums of more than 1 MiB."""
    X = np.random.default_rng(0).normal(size=(70_000, 6))
    X[:30_000] += 4
    keep, pools, at_work = BufferPool._keep, set(), []

    def listen(pool, buffer):
        pools.add(pool)
        at_work.append(bool(pool._users))
        keep(pool, buffer)

    monkeypatch.setattr(BufferPool, "_keep", listen)
    more = {"init_params": "random", "max_iter": 2}
    model = VerticalGaussianMixture(
        2, partition={"a": [0], "b": [1, 2]}, graph="star", summation=Differences(Star()), random_state=0, **more
    )
    with pytest.warns(vpem.FitWarning):
        model.fit(X[:, :3])
    model.predict(X[:, :3])
    assert not any(pool._free for pool in pools)
    assert True in at_work, "buffers are used"
    at_work.clear()
    net = run(make_study(nx.path_graph(3), X=X, summation=Differences(Tree()), **more)[0])
    assert all(agent.is_done for agent in net.agents.values())
    assert not any(pool._users for pool in pools)
    del net, model
    gc.collect()
    assert True in at_work
    assert False in at_work, "some arrays live longer than the fit"
    assert not any(pool._free for pool in pools)
