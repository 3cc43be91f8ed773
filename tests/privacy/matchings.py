"""Agents that match rows in one process, for tests."""

import numpy as np

from vpem.privacy.ids import spell
from vpem.privacy.matching import Matching
from vpem.privacy.parcels import Agents


def make(lists, *, links=None, matcher=0, join="inner", server=False, rule="text", **arguments):
    """Agents of some lists of ids; in a row, or around a server."""
    n = len(lists)
    names = tuple(f"p{number}" for number in range(n)) + (("server",) if server else ())
    if links is None:
        links = tuple((number, n if server else number + 1) for number in range(n if server else n - 1))
    agents = Agents(names, links, tuple(range(n)), n if server else matcher, join, "a study")
    found = {
        number: Matching(number, agents, spell([(key,) for key in keys], rule).spelled, b"salt", **arguments)
        for number, keys in enumerate(lists)
    }
    if server:
        found[n] = Matching(n, agents, None, b"salt", **arguments)
    return found


def connect(agents):
    """What all send when their links are there."""
    line = [(agent.number, frame) for agent in agents.values() for frame in agent.start()]
    for agent in agents.values():
        for peer in agent.neighbours:
            line += [(agent.number, frame) for frame in agent.connect(peer)]
    return line


def drive(agents, line=None, rng=None, watch=None, until=None):
    """Deliver all frames, each link's in order; returns what is on its way if it ends before."""
    line = connect(agents) if line is None else line
    while line:
        place = 0
        if rng is not None:
            links = list(dict.fromkeys((sender, frame.receiver) for sender, frame in line))
            link = links[int(rng.integers(len(links)))]
            place = next(at for at, (sender, frame) in enumerate(line) if (sender, frame.receiver) == link)
        sender, frame = line.pop(place)
        if watch is not None:
            watch(sender, frame)
        line += [(frame.receiver, out) for out in agents[frame.receiver].receive(sender, frame.content)]
        if until is not None and until():
            return line
    return []


def common_rows(lists, join):
    """What parties should find, from the ids themselves."""
    sets = [set(map(str, keys)) for keys in lists]
    return set.intersection(*sets) if join == "inner" else set.union(*sets)


def check(agents, lists, join="inner"):
    """All have found the same rows, each its own part of them."""
    expected = common_rows(lists, join)
    row_of = {}
    for number, keys in enumerate(lists):
        matched = agents[number].matched
        assert matched is not None, (agents[number].failure, agents[number].losses)
        assert matched.n_rows == len(expected)
        for key, row in zip(keys, matched.rows.tolist(), strict=True):
            assert (row >= 0) == (str(key) in expected)
            if row >= 0:
                assert row_of.setdefault(str(key), row) == row
    assert sorted(row_of.values()) == list(range(len(expected)))
    assert len({agents[number].matched.digest for number in range(len(lists))}) == 1
    assert all(agent.is_done for agent in agents.values())
    return np.array([row_of[key] for key in sorted(expected)])
