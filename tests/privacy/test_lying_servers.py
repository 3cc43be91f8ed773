"""Servers that lie under masks: what they told once to read one party's terms, and what happens now."""

from contextlib import suppress

import msgspec
import numpy as np
import pytest

import vpem.privacy.masks as masks
from privacy import test_repeats as repeats
from privacy.test_consent import study
from vpem.core.agent.exchange import _tag
from vpem.core.agent.meeting import signed_content
from vpem.core.agent.message import StaleMessageError
from vpem.privacy import masked_deltas
from vpem.privacy.parcels import Hello
from vpem.privacy.points import PointError
from vpem.privacy.runs import Run


def pump(agents, line, change=lambda message: message):
    while line:
        message = change(line.pop(0))
        if message is not None:
            with suppress(StaleMessageError):
                line += agents[message.receiver].receive(message)


def test_a_total_with_another_scale_for_each_party_makes_masks_that_do_not_cancel(monkeypatch):
    """To one party that nothing has changed, to the others that much has: with units that are far larger, the others'
    next changes would be zeros, and the total the one party's own.
    """
    agents = study()
    server, victim, forged, last = agents[5], 0, {}, [None]
    honest = masks._open

    def tell(place, state, head, entries):
        found = honest(place, state, head, entries)
        if not masks._is_change(place, state):
            return found
        contents = (masked_deltas.pack(np.full(len(entries), number, np.int32)) for number in (0, 2**20))
        for_one, others = (np.frombuffer(head.astype("<f8").tobytes() + own, np.uint8) for own in contents)
        forged[for_one.tobytes()] = others
        return for_one

    def change(message):
        if server.state.exchange:
            last[0] = server.state
        if message.sender == 5 and message.kind == "sum" and message.receiver != victim:
            other = forged.get(message.values.tobytes())
            if other is not None:
                message = message._replace(values=other)
                message = message._replace(tag=_tag(server.identity, last[0], message, message.receiver))
        return message

    monkeypatch.setattr(masks, "_open", tell)
    pump(agents, [message for agent in agents for message in agent.start()], change)
    assert len(forged) == 1, "the next sum is noise"
    assert all("expected masks that cancel" in agent.failure for agent in agents)


def test_a_server_cannot_leave_out_a_party_in_the_first_meeting():
    agents = study()
    server = agents[5]
    honest = server.identity.record

    def lie(state):
        said = {"neighbours": (0, 1, 2, 3), "abandoned": (4,), "consents": (4,), "n_members": 6, "proof": b""}
        record, own = msgspec.structs.replace(honest(state), **said), server.identity.credentials
        return msgspec.structs.replace(record, proof=own.sign(signed_content(record, state.epoch, own.study)))

    server.identity.record, server.state.abandoned = lie, frozenset({4})
    line = [message for agent in agents[:4] + agents[5:] for message in agent.start()]
    pump(agents, line, lambda message: None if 4 in (message.sender, message.receiver) else message)
    for agent in agents[:4]:
        assert agent.state.meeting
        assert agent.held_up == "waiting until all agree to go on without 4: 0, 1, 2, 3 need --without 4"
        assert agent.identity.gone(agent.state) == (4,), "as the study says, though there was no meeting before"


def test_rows_that_were_added_stay_known_when_a_server_says_that_all_must_begin_again():
    agents, new, keys = repeats.fitted(), repeats.few_values(6, seed=1), np.arange(1001, 1007)
    assert repeats.ask(agents, new, keys) == [None] * 5
    server, known = agents[4], set()
    honest = server.identity.record

    def watch(message):
        if not agents[0].state.meeting:
            known.add(len(agents[0].state.progress.seen.get("keys", ())))
        return message

    server.identity.record = lambda state: msgspec.structs.replace(honest(state), newest=0, oldest=0, model=0)
    for number in range(4):
        server.lose(number)
        agents[number].lose(4)
    line = [message for number in range(4) for message in server.rejoin(number)]
    pump(agents, line + [message for agent in agents[:4] for message in agent.rejoin(4)], watch)
    assert all(agent.is_done for agent in agents)
    assert known == {46}, "of the fit and of the prediction, in all that was done again"
    server.identity.record = honest
    assert "rows that are added again" in repeats.ask(agents, new, keys, lacking=[3])[0]


@pytest.mark.parametrize(
    ("join", "n_rows", "rows", "problem"),
    [
        ("inner", 9, [0, 1, 2], "expected 9 common rows to be rows of this party, got 3"),
        ("inner", 3, [0, 1, -1], "expected 3 common rows to be rows of this party, got 2"),
        ("outer", 10, [0, 1, 2], "expected at most 9 rows of all parties, got 10"),
    ],
)
def test_a_matcher_cannot_give_every_party_rows_of_its_own(join, n_rows, rows, problem):
    run = Run({number: Hello(number, bytes(16), bytes(32), 3, "") for number in range(3)})
    run.order = [0, 1, 2]
    content = n_rows.to_bytes(8, "big") + bytes(32) + np.array(rows, "<i8").tobytes()
    with pytest.raises(PointError, match=problem):
        run.read_result(content, dict.fromkeys("abc", 3), join)
