"""A matching in which processes die, restart and lose links at any moment ends, and all have one result."""

import pytest

from privacy.lives import COMPLETE, PATH, RING, STAR, World
from privacy.matchings import check, drive, make

SHAPES = {"star": STAR, "ring": RING, "path": PATH, "complete": COMPLETE}
LISTS = [[1, 2, 3, 4, 5], [5, 4, 9, 3], [3, 5, 7, 4]]


@pytest.mark.parametrize("chance", [0.03, 0.1])
@pytest.mark.parametrize("shape", SHAPES)
def test_whoever_dies_whenever_all_go_on_to_the_fit_with_one_result(shape, chance):
    for seed in range(15):
        world = World(SHAPES[shape], seed, server=shape == "star")
        world.run(200, chance)
        try:
            world.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def links_up(agents, *links):
    """What agents send when they hear of new links."""
    ends = [end for link in links for end in (link, link[::-1])]
    return [(one, frame) for one, peer in ends for frame in agents[one].connect(peer)]


@pytest.mark.parametrize("n_frames", [14, 18, 22, 26, 30])
def test_a_party_and_the_server_that_restart_together_are_known_by_their_new_hellos(n_frames):
    """The server hears of the party's new process before anyone tells it of the old one, of the same version."""
    agents = make(LISTS, server=True)
    left = iter(range(n_frames))
    drive(agents, until=lambda: next(left, None) is None)
    assert not any(agent.is_done for agent in agents.values())
    new = make(LISTS, server=True)
    agents[0], agents[3] = new[0], new[3]
    agents[1].disconnect(3), agents[2].disconnect(3)
    drive(agents, links_up(agents, (0, 3)))
    drive(agents, links_up(agents, (1, 3), (2, 3)))
    check(agents, LISTS)


def test_a_link_may_come_after_all_hellos_have_come_another_way():
    agents = make(LISTS, links=((0, 1), (1, 2), (0, 2)))
    drive(agents, links_up(agents, (0, 1), (1, 2)))
    assert not any(agent.is_done for agent in agents.values())
    drive(agents, links_up(agents, (0, 2)))
    check(agents, LISTS)


def test_a_result_that_all_have_kept_is_not_found_again():
    kept = []
    agents = make(LISTS, save=kept.append)
    drive(agents)
    check(agents, LISTS)
    assert len(kept) == 3
    again = with_saved(agents, 0, 1, 2)
    drive(again)
    check(again, LISTS)
    assert agents[0].matched.digest == again[0].matched.digest
    assert all(again[number].progress == (0, 0) for number in again)


def with_saved(agents, *numbers):
    """The agents' next processes; some have their results."""
    return {
        number: type(one)(number, one.agents, one.ids, one.salt, saved=one.matched if number in numbers else None)
        for number, one in agents.items()
    }


def test_all_begin_again_if_one_has_no_result():
    agents = make(LISTS)
    drive(agents)
    new = with_saved(agents, 0, 2)
    drive(new)
    check(new, LISTS)
    assert new[0].matched.digest != agents[0].matched.digest


def test_who_has_lost_its_result_is_named_to_those_that_are_done():
    agents = make(LISTS)
    drive(agents)
    agents[2] = with_saved(agents)[2]
    agents[1].disconnect(2)
    drive(agents, links_up(agents, (1, 2)))
    for agent in agents.values():
        assert "got 'p2' without; try --fresh" in agent.failure


def test_who_finds_a_neighbour_at_the_fit_follows_with_what_it_has_kept():
    agents = make(LISTS, server=True)
    drive(agents)
    new = with_saved(agents, 0)
    assert new[3].follow(), "a server has nothing to keep"
    assert new[0].follow()
    assert new[0].is_done
    assert new[0].matched.digest == agents[0].matched.digest
    assert not new[1].follow()
    assert not new[1].is_done
