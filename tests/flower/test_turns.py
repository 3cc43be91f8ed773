"""A star in which the server asks and parties answer, each time in another process: the same bits as without."""

import pytest

from studies import bits, make_study, run
from vpem.agents import Session
from vpem.core.network.differences import Differences
from vpem.core.network.star import Star
from vpem.flower.turns import Answer, Question, Stopped, answer, drive, find_parties, open_run, pack, unpack
from vpem.privacy.masks import Masked
from vpem.transports.datagrams import Hello

STARS = {
    "random": {"init_params": "random", "max_iter": 3},
    "k-means": {"max_iter": 4},
    "two starts": {"n_init": 2, "max_iter": 3, "init_params": "random"},
    "labels": {"init_params": "labels", "summation": Differences(Star()), "max_iter": 4},
    "batches": {"batch_size": 25, "init_params": "random", "max_iter": 3},
    "masked": {"init_params": "random", "summation": Masked(Star()), "max_iter": 4},
}
FIRST = 100
"""Node of party 0."""


class Platform:
    """Keeps what a party's session was when it answered last, and what it has saved, as bytes."""

    def __init__(self, study, kept=None):
        self.study, self.paused, self.saved = study, {}, {} if kept is None else kept
        self.agents = self.make()
        *self.parties, self.server = sorted(self.agents)
        self.names = {number: self.agents[number].name for number in self.parties}
        self.ends, self.n_early = {}, 0

    def make(self):
        agents = make_study("star", **STARS[self.study])[0]
        return {agent.number: agent for agent in agents}

    def hello(self, number):
        return Hello(name=self.agents[number].name, number=number)

    def session(self, number, question=None):
        agent = self.make()[number]
        save = {"save": lambda content: self.saved.update({number: content})}
        if question is not None and question.number:
            return Session.resume(agent, self.paused.pop(number), **save)
        if number in self.saved:
            return Session.restore(agent, self.saved[number], **save)
        return Session(agent, **save)

    def ask(self, questions):
        found = {}
        for node, question in questions.items():
            question = unpack(pack(question), Question)
            if node - FIRST not in self.names:
                found[node] = Answer(failure="this node is no party")
                continue
            session = self.session(node - FIRST, question)
            given = answer(session, self.server, question)
            self.paused[node - FIRST], self.ends[node - FIRST] = session.pause(), session.agent
            if question.number == 0:
                given = Answer(given.frames, hello=self.hello(node - FIRST))
            found[node] = unpack(pack(given), Answer)
        return found

    def run(self, ask=None, n_nodes=None, watch=lambda *_: None):
        session = self.session(self.server)
        nodes = [FIRST + number for number in range(n_nodes or len(self.parties))]
        ask = ask or self.ask
        opened = open_run(session, self.hello(self.server), self.names, nodes, ask)
        found = drive(session, opened, self.names, ask, watch=watch)
        self.ends[self.server] = session.agent
        return found

    def bits(self):
        return bits([self.ends[number] for number in sorted(self.ends)])


def expected(study):
    return bits(run(make_study("star", **STARS[study])[0]).agents.values())


@pytest.mark.parametrize("study", STARS)
def test_parties_that_answer_from_new_processes_come_to_the_same_bits(study):
    platform = Platform(study)
    n_questions = platform.run(n_nodes=6)  # two of them are no parties
    assert platform.bits() == expected(study)
    assert n_questions > 3


def test_a_sum_is_one_question():
    """The meeting is one, each of four sums (three iterations, and the one that ends them), and the last total."""
    assert Platform("random").run() == 1 + 4 + 1
    # Masked ones count first who has which rows.
    assert Platform("masked").run() == 1 + 1 + 5 + 1


@pytest.mark.parametrize("study", ["k-means", "labels", "masked"])
def test_a_run_that_was_cut_off_goes_on_from_the_checkpoints(study):
    whole, wanted = Platform(study).run(), expected(study)
    for last in range(1, whole):
        platform, asked = Platform(study), 0

        def ask(questions, last=last, platform=platform):
            nonlocal asked
            asked += 1
            if asked > last:
                raise Stopped("cut off")
            return platform.ask(questions)

        with pytest.raises(Stopped, match="cut off"):
            platform.run(ask)
        later = Platform(study, platform.saved)
        later.run()
        assert later.bits() == wanted


def test_a_party_that_is_asked_too_early_is_asked_again():
    platform, asked = Platform("random"), []

    def ask(questions):
        asked.append(len(questions))
        return platform.ask(questions) if len(asked) != 3 else {node: Answer(is_early=True) for node in questions}

    assert platform.run(ask) == 6
    assert len(asked) == 7
    assert platform.bits() == expected("random")
    with pytest.raises(Stopped, match="has lost its state"):
        Platform("random").run(lambda questions: {node: Answer(is_early=True) for node in questions})


def test_a_party_that_sends_garbage_ends_the_run():
    platform = Platform("random")

    def ask(questions):
        found = platform.ask(questions)
        return found | {FIRST: Answer([b"garbage" * 20], hello=platform.hello(0))}

    with pytest.raises(Stopped, match="0 sent what it must not"):
        platform.run(ask)
    with pytest.raises(ValueError, match="expected questions of this version"):
        unpack(b"garbage", Question)


def test_a_party_that_cannot_go_on_ends_the_run_with_its_reason():
    platform = Platform("random")

    def ask(questions):
        return platform.ask(questions) | {FIRST + 1: Answer(hello=platform.hello(1), failure="no table")}

    with pytest.raises(Stopped, match="1: no table"):
        platform.run(ask)


def test_nodes_must_be_the_parties_of_the_study():
    names = {0: "north", 1: "south"}
    server = Hello(name="server", number=2, fields={"seed": "1"})
    north = Answer(hello=Hello(name="north", number=0, fields={"seed": "1"}, rows=9, order="a"))
    south = Answer(hello=Hello(name="south", number=1, fields={"seed": "1"}, rows=9, order="a"))
    other = Answer(failure="a node without party = ...")
    assert find_parties(server, {7: south, 8: north, 9: other}, names) == {0: 8, 1: 7}
    with pytest.raises(Stopped, match=r"got two; each party has one; .* got none of south; a node without party"):
        find_parties(server, {7: north, 8: north, 9: other}, names)
    few = Answer(hello=Hello(name="south", number=1, fields={"seed": "2"}, rows=8, order="b"))
    with pytest.raises(Stopped, match=r"different studies: seed.*south and north have different studies"):
        find_parties(server, {7: north, 8: few}, names)
    other_rows = Answer(hello=Hello(name="south", number=1, fields={"seed": "1"}, rows=9, order="b"))
    with pytest.raises(Stopped, match="not with the same ids"):
        find_parties(server, {7: north, 8: other_rows}, names)
