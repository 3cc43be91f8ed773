"""Sessions over wires in memory: what an engine does when a neighbour sends what it must not."""

import threading
import time
from queue import SimpleQueue

from vpem.core.agent.message import Frame
from vpem.privacy.ids import spell
from vpem.privacy.matching import Matching
from vpem.privacy.parcels import Agents
from vpem.transports.outcomes import Away, Progress, Wrong
from vpem.transports.session_runner import Hello, run

NAMES = ("north", "east")
SECONDS = 60


class MemoryWire:
    """An agent's ends of links between threads."""

    def __init__(self):
        self.others, self.inbox = {}, SimpleQueue()

    def listen(self, take, _):
        threading.Thread(target=self._carry, args=(take,), daemon=True).start()

    def _carry(self, take):
        while (arrived := self.inbox.get()) is not None:
            take(*arrived)

    def send(self, peer, datagram, *, may_wait=False):
        wire, number = self.others[peer]
        wire.inbox.put((number, datagram._replace(content=bytes(datagram.content))))

    def room(self, _):
        return 2**20

    def problems(self):
        return []


class BlockedWire(MemoryWire):
    """Sends to one neighbour block for some leases, once there is a link."""

    def __init__(self, peer, seconds):
        super().__init__()
        self.peer, self.seconds = peer, seconds

    def send(self, peer, datagram, *, may_wait=False):
        if may_wait and peer == self.peer:
            seconds, self.seconds = self.seconds, 0.0
            time.sleep(seconds)
        super().send(peer, datagram)


def sessions(names=NAMES):
    links = tuple((0, number) for number in range(1, len(names)))
    agents = Agents(names, links, tuple(range(len(names))), 0, "inner", "a study")
    ids = [spell([(key,) for key in range(number, number + 3)], "text").spelled for number in range(len(names))]
    return [Matching(number, agents, own, b"salt") for number, own in enumerate(ids)]


def run_all(found, purposes=("match", "match"), names=NAMES, first=None, lease=1.0):
    """Outcomes of all, and what was told. The first agent is linked with all others."""
    wires, outcomes, told = [first or MemoryWire(), *(MemoryWire() for _ in found[1:])], {}, []
    for number, wire in enumerate(wires[1:], 1):
        wire.others[0], wires[0].others[number] = (wires[0], number), (wire, 0)
    end = time.monotonic() + SECONDS

    def serve(number):
        outcomes[number] = run(
            found[number],
            wires[number],
            Hello(name=names[number], number=number, purpose=purposes[number]),
            names=dict(enumerate(names)),
            patience=SECONDS,
            lease=lease,
            watch=told.append,
            stop=lambda: time.monotonic() > end or (len(outcomes) > 0 and len(set(purposes)) > 1),
            follow=found[number].follow,
        )

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for wire in wires:
        wire.inbox.put(None)
    return outcomes, told


def test_a_neighbour_to_which_sending_blocks_does_not_end_the_links_of_others():
    names = ("south", "north", "east")
    outcomes, told = run_all(sessions(names), ("match",) * 3, names, first=BlockedWire(1, 5.0), lease=2.0)
    assert {outcome.kind for outcome in outcomes.values()} == {"finished"}
    away = [one.name for one in told if isinstance(one, Away)]
    assert away
    assert set(away) <= {"south", "north"}, "both ends of the blocked link"
    assert away.count("south") == 1, "east heard it all the time"


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
    late[0]._saved = found[0].matched
    outcomes, told = run_all(late, ("match", "fit"))
    assert outcomes[0].kind == "finished"
    assert outcomes[1].kind == "interrupted", "by the test: it waited"
    assert not [one for one in told if not isinstance(one, Progress)]
    outcomes, _ = run_all(sessions(), ("match", "fit"))
    assert outcomes[0].kind == "refused"
    assert "east is at the fit, north has not kept" in outcomes[0].reason
