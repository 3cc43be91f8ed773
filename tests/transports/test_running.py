"""Sessions over wires in memory: what an engine does when a neighbour sends what it must not."""

import threading
import time
from queue import SimpleQueue

from vpem.privacy.ids import spell
from vpem.privacy.matching import Matching
from vpem.privacy.parcels import Agents, Frame
from vpem.studies.ledger import Ledger
from vpem.studies.matching import MatchSession
from vpem.transports.outcomes import Progress, Wrong
from vpem.transports.running import Hello, run

NAMES = ("north", "east")
SECONDS = 60


class MemoryWire:
    """One end of a link between two threads."""

    def __init__(self, peer):
        self.peer, self.other, self.inbox = peer, None, SimpleQueue()

    def listen(self, take, _):
        threading.Thread(target=self._carry, args=(take,), daemon=True).start()

    def _carry(self, take):
        while (datagram := self.inbox.get()) is not None:
            take(self.peer, datagram)

    def send(self, _, datagram, *, may_wait=False):
        self.other.inbox.put(datagram._replace(content=bytes(datagram.content)))

    def room(self, _):
        return 2**20

    def problems(self):
        return []


def sessions():
    agents = Agents(NAMES, ((0, 1),), (0, 1), 0, "inner", "a study")
    ids = [spell([(key,) for key in keys], "text").spelled for keys in ([1, 2, 3], [2, 3, 4])]
    return [MatchSession(Matching(number, agents, ids[number], b"salt"), Ledger(NAMES)) for number in (0, 1)]


def run_all(found, purposes=("match", "match")):
    """Outcomes of both, and what was told."""
    wires, outcomes, told = [MemoryWire(1), MemoryWire(0)], {}, []
    wires[0].other, wires[1].other = wires[1], wires[0]
    end = time.monotonic() + SECONDS

    def serve(number):
        outcomes[number] = run(
            found[number],
            wires[number],
            Hello(name=NAMES[number], number=number, purpose=purposes[number]),
            names=dict(enumerate(NAMES)),
            patience=SECONDS,
            lease=1.0,
            watch=told.append,
            stop=lambda: time.monotonic() > end or (len(outcomes) > 0 and purposes[0] != purposes[1]),
            follow=found[number].matching.follow,
        )

    threads = [threading.Thread(target=serve, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for wire in wires:
        wire.inbox.put(None)
    return outcomes, told


def test_a_frame_that_is_refused_by_its_first_bytes_ends_the_link_which_begins_again():
    found = sessions()
    connect, bad = found[1].connect, [Frame(0, b"GET / HTTP/1.1\r\n\r\n")]

    def connect_badly(peer):
        frames = [*bad, *connect(peer)]
        bad.clear()
        return frames

    found[1].connect = connect_badly
    outcomes, told = run_all(found)
    assert {outcome.kind for outcome in outcomes.values()} == {"finished"}
    assert [one.name for one in told if isinstance(one, Wrong)] == ["east"]


def test_who_is_behind_ends_and_who_is_ahead_waits_for_it():
    found = sessions()
    matched, _ = run_all(found)
    assert {outcome.kind for outcome in matched.values()} == {"finished"}
    late = sessions()
    late[0].matching._saved = found[0].matching.matched
    outcomes, told = run_all(late, ("match", "fit"))
    assert outcomes[0].kind == "finished"
    assert outcomes[1].kind == "interrupted", "by the test: it waited"
    assert not [one for one in told if not isinstance(one, Progress)]
    outcomes, _ = run_all(sessions(), ("match", "fit"))
    assert outcomes[0].kind == "refused"
    assert "east is at the fit, north has not kept" in outcomes[0].reason
