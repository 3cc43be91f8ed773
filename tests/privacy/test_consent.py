"""Going on without a party, under masks: what a lying server cannot do, and what all together can."""

from contextlib import suppress

import msgspec
import networkx as nx
import numpy as np
import pytest

from privacy.test_attacks import Notary
from studies import bits, make_study, run, table
from vpem import Masked, Star, Tree
from vpem.core.agent.meeting import decode_records, encode_records
from vpem.core.agent.message import LocalProtocolError, RemoteProtocolError, StaleMessageError
from vpem.transports import wire
from vpem.transports.inprocess import InProcess

COLUMNS = {n: [n] for n in range(5)}


def study(graph="star", columns=COLUMNS):
    way = Masked(Star() if graph == "star" else Tree())
    X = table(n_columns=len(columns), gaps=False)
    agents, _ = make_study(graph, X, columns=columns, summation=way, init_params="random", max_iter=6)
    names = [agent.name for agent in agents]
    for agent in agents:
        agent.identity.credentials = Notary(agent.name, names)
    return agents


def begun(agents):
    """In the midst of the fit."""
    transport = InProcess(agents, encoded=True).start()
    transport.run(lambda: agents[0].state.progress.run is not None and agents[0].state.progress.run.iteration > 1)
    assert not any(agent.is_done or agent.state.meeting for agent in agents)
    return transport


class LyingServer:
    """Carries messages between the parties of a star and its server, which says that party 4 is gone."""

    def __init__(self):
        self.agents, self.seen = study(), []
        self.change = lambda record, receiver: record
        """What the server makes of a record that it passes on to a party."""
        self.line = [message for agent in self.agents for message in agent.start()]
        self.pump(lambda: self.agents[0].state.progress.n_sums > 3)
        self.seen.clear()

    def pump(self, until=lambda: False):
        while self.line and not until():
            message = self.line.pop(0)
            self.seen.append(message)
            if message.sender == 5 and message.kind == "meet":
                records = [self.change(record, message.receiver) for record in decode_records(message.values)]
                message = message._replace(values=encode_records(records))
            if message.sender in self.agents[5].state.abandoned:
                continue  # the party is there: the server drops what it says
            with suppress(StaleMessageError):
                self.line += self.agents[message.receiver].receive(message)

    def lie(self):
        self.line += self.agents[5].abandon(4)
        self.pump()

    def agree(self, number):
        self.line += self.agents[number].consent(4)
        self.pump()

    @property
    def kinds(self):
        """Of messages after the lie."""
        return {message.kind for message in self.seen if message.epoch > 0}


def test_a_server_that_says_that_a_party_is_gone_sees_no_sum_without_it():
    network = LyingServer()
    network.lie()
    assert network.kinds == {"meet"}, "records, and not one sum"
    for agent in network.agents[:4]:
        assert agent.failure is None
        assert agent.state.meeting
        assert agent.held_up == "waiting until all agree to go on without 4: 0, 1, 2, 3 need --without 4"
    for number in (0, 1, 2):
        network.agree(number)
    assert network.agents[0].held_up == "waiting until all agree to go on without 4: 3 need --without 4"
    assert network.kinds == {"meet"}
    network.agree(3)
    assert all(network.agents[number].is_done for number in (0, 1, 2, 3, 5)), "now it is no lie"


def test_a_server_cannot_agree_for_others():
    network = LyingServer()
    network.change = lambda record, receiver: (
        record if record.number in (receiver, 5) else msgspec.structs.replace(record, consents=(4,))
    )
    with pytest.raises(RemoteProtocolError, match=r"peer 5: expected '\d' to have signed its record, got another"):
        network.lie()


def test_what_was_agreed_to_in_one_epoch_proves_nothing_in_the_next():
    network = LyingServer()
    network.lie()
    network.agree(1)
    agreed = network.agents[5].state.records[1]
    assert agreed.consents == (4,)
    network.change = lambda record, receiver: agreed if record.number == 1 and receiver != 1 else record
    with pytest.raises(RemoteProtocolError, match="peer 5: expected '1' to have signed its record"):
        network.agree(0)


@pytest.mark.parametrize("graph", ["star", nx.path_graph(5)], ids=["star", "path"])
def test_all_that_remain_go_on_together(graph):
    agents = study(graph)
    transport = begun(agents)
    near = 5 if graph == "star" else 3
    transport.crash(4)
    transport.run()
    transport.post(transport.agents[near].abandon(4))
    for number in set(range(4)) - {near}:
        assert not transport.agents[number].is_done
        transport.post(transport.agents[number].consent(4))
        transport.run()
    rest = [agent for number, agent in transport.agents.items() if number != 4]
    assert all(agent.is_done and agent.held_up is None for agent in rest), [agent.failure for agent in rest]
    # As a fit that never had the party, but for its seed: the likelihoods have the same form, and rise.
    for found in bits(rest).values():
        assert np.all(np.diff(found[0]) > -1e-3)
    assert transport.agents[0].state.consents == ({4} if near != 0 else set())
    assert wire.decode_state(wire.encode_state(transport.agents[0].state)).consents == {4}, "it outlives the process"


def test_two_do_not_go_on_without_the_third():
    agents = study(columns={n: [n] for n in range(3)})
    transport = begun(agents)
    transport.crash(2)
    transport.post(transport.agents[3].abandon(2))
    for number in (0, 1):
        transport.post(transport.agents[number].consent(2))
        transport.run()
    assert all("expected at least 3 parties" in transport.agents[number].failure for number in (0, 1, 3))


def test_consent_is_for_others_than_neighbours_and_for_masks():
    agents = study()
    with pytest.raises(LocalProtocolError, match="give neighbours up with abandon"):
        agents[5].consent(4)
    plain, _ = make_study("star")
    run(plain)
    assert plain[0].consent(3) == []
    assert plain[0].state.consents == frozenset()
