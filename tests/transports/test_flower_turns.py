"""A star in which the server asks and parties answer, each time in another process: the same bits as without."""

import pytest

from studies import bits, make_study, run
from vpem.agents import Session
from vpem.core.network.differences import Differences
from vpem.core.network.star import Star
from vpem.transports.datagrams import Hello
from vpem.transports.flower import Answer, Question, Stopped, answer, check_hellos, drive, pack, unpack

STARS = {
    "random": {"init_params": "random", "max_iter": 3},
    "k-means": {"max_iter": 4},
    "two starts": {"n_init": 2, "max_iter": 3, "init_params": "random"},
    "labels": {"init_params": "labels", "summation": Differences(Star()), "max_iter": 4},
    "batches": {"batch_size": 25, "init_params": "random", "max_iter": 3},
}


class Platform:
    """Keeps what a party's session was when it answered last, and what it has saved, as bytes."""

    def __init__(self, make, kept=None):
        self.make, self.paused, self.saved = make, {}, {} if kept is None else kept
        *_, self.server = sorted(make())
        self.ends = {}

    def session(self, number, question):
        agent = self.make()[number]
        save = {"save": lambda content: self.saved.update({number: content})}
        if question is not None and not question.begins:
            return Session.resume(agent, self.paused.pop(number), **save)
        if number in self.saved:
            return Session.restore(agent, self.saved[number], **save)
        return Session(agent, **save)

    def ask(self, questions):
        found = {}
        for number, question in questions.items():
            question = unpack(pack(question), Question)
            session = self.session(number, question)
            given = answer(session, self.server, question)
            self.paused[number], self.ends[number] = session.pause(), session.agent
            found[number] = unpack(pack(given), Answer)
        return found

    def run(self, ask=None):
        session = self.session(self.server, None)
        self.ends[self.server] = session.agent
        return drive(session, ask or self.ask), session


def agents_of(study):
    return lambda: make_study("star", **STARS[study])[0]


def as_mapping(agents):
    return {agent.number: agent for agent in (agents.values() if isinstance(agents, dict) else agents)}


@pytest.mark.parametrize("study", STARS)
def test_parties_that_answer_from_new_processes_come_to_the_same_bits(study):
    make = agents_of(study)
    expected = bits(run(make()).agents.values())
    platform = Platform(lambda: as_mapping(make()))
    n_questions, session = platform.run()
    platform.ends[platform.server] = session.agent
    assert bits([platform.ends[number] for number in sorted(platform.ends)]) == expected
    assert n_questions > 3


@pytest.mark.parametrize("study", ["k-means", "labels"])
def test_a_run_that_was_cut_off_goes_on_from_the_checkpoints(study):
    make = agents_of(study)
    whole, _ = Platform(lambda: as_mapping(make())).run()
    expected = bits(run(make()).agents.values())
    for last in range(1, whole):
        platform, asked = Platform(lambda: as_mapping(make())), 0

        def ask(questions, last=last, platform=platform):
            nonlocal asked
            asked += 1
            if asked > last:
                raise Stopped("cut off")
            return platform.ask(questions)

        with pytest.raises(Stopped, match="cut off"):
            platform.run(ask)
        later = Platform(platform.make, platform.saved)
        _, session = later.run()
        later.ends[later.server] = session.agent
        assert bits([later.ends[number] for number in sorted(later.ends)]) == expected


def test_a_party_that_sends_garbage_ends_the_run():
    platform = Platform(lambda: as_mapping(agents_of("random")()))

    def ask(questions):
        found = platform.ask(questions)
        return found | {0: Answer([b"garbage" * 20])}

    with pytest.raises(Stopped, match="agent 0 sent what it must not"):
        platform.run(ask)
    with pytest.raises(ValueError, match="expected a question of this version"):
        unpack(b"garbage", Question)


def test_nodes_must_be_the_parties_of_the_study():
    names = {0: "north", 1: "south"}
    server = Hello(name="server", number=2, fields={"seed": "1"})
    north = Hello(name="north", number=0, fields={"seed": "1"}, rows=9, order="a")
    south = Hello(name="south", number=1, fields={"seed": "1"}, rows=9, order="a")
    assert check_hellos(server, {"7": south, "8": north}, names) == {0: "8", 1: "7"}
    with pytest.raises(
        ValueError, match="got two; each party has one; expected a node of each party, got none of south"
    ):
        check_hellos(server, {"7": north, "8": north}, names)
    few = Hello(name="south", number=1, fields={"seed": "2"}, rows=8, order="b")
    with pytest.raises(ValueError, match=r"different studies: seed.*south and north have different studies"):
        check_hellos(server, {"7": north, "8": few}, names)
