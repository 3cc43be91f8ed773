"""Cost of links compared with bare zenoh and bare sockets: rings of 5 processes that move the same bytes, in one run.

Each process sends a message to both neighbours and waits for theirs, round after round. Times are those of a round,
the median of several turns; processor time is of all processes together, and says more where others use the machine
as well. `python benchmarks/network.py [ROUNDS]`
"""

import multiprocessing
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

N, STUDY = 5, "bench"
SIZES = {"288 KB": (288_000, 100), "8 MB": (8_000_000, 12)}
WAYS = ("sockets", "zenoh TCP", "ours TCP", "zenoh mTLS", "ours mTLS")
TURNS = 9


def neighbours_of(number):
    """Both neighbours on the ring."""
    return sorted({(number - 1) % N, (number + 1) % N})


def make_wiring(number, ports, folder):
    """The wiring of one process; with certificates in a folder, if there is one."""
    from vpem.transports.wiring import Peer, Tls, Wiring

    peers = tuple(
        Peer(
            number=peer,
            name=str(peer),
            address=f"127.0.0.1:{ports[peer]}",
            certificate=f"party-{peer}",
            connect=number < peer,
        )
        for peer in neighbours_of(number)
    )
    paths = {"certificate": f"party-{number}.crt", "key": f"party-{number}.key", "ca": "authority.crt"}
    tls = folder and Tls(**{name: Path(folder) / path for name, path in paths.items()})
    listen = f"127.0.0.1:{ports[number]}"
    return Wiring(study=STUDY, number=number, listen=listen, peers=peers, tls=tls, lease=10.0)


def over_sockets(number, ports, _, content, n_rounds, barrier):
    """Blocking sockets, a thread to send on each."""
    listener = socket.create_server(("127.0.0.1", ports[number]))
    barrier.wait()
    links = {}
    for peer in neighbours_of(number):
        if number < peer:
            links[peer] = socket.create_connection(("127.0.0.1", ports[peer]))
            links[peer].sendall(bytes([number]))
    while len(links) < 2:
        one, _ = listener.accept()
        links[one.recv(1)[0]] = one
    room = memoryview(bytearray(len(content)))

    def exchange():
        threads = [threading.Thread(target=link.sendall, args=(content,)) for link in links.values()]
        for thread in threads:
            thread.start()
        for link in links.values():
            n_read = 0
            while n_read < len(content):
                n_read += link.recv_into(room[n_read:])
        for thread in threads:
            thread.join()

    return measure(exchange, n_rounds, barrier)


def over_zenoh(number, ports, folder, content, n_rounds, barrier):
    """Zenoh with the same configuration, one put for each message."""
    import json

    import zenoh

    from vpem.transports.zenoh_config import key, settings

    config = zenoh.Config()
    chosen = settings(make_wiring(number, ports, folder))
    del chosen["transport/link/rx/max_message_size"]
    for name, value in chosen.items():
        config.insert_json5(name, json.dumps(value))
    peers = neighbours_of(number)
    with zenoh.open(config) as session:
        inboxes = [
            session.declare_subscriber(key(STUDY, peer, number), zenoh.handlers.FifoChannel(64)) for peer in peers
        ]
        outboxes = [
            session.declare_publisher(
                key(STUDY, number, peer),
                congestion_control=zenoh.CongestionControl.BLOCK,
                reliability=zenoh.Reliability.RELIABLE,
                express=True,
            )
            for peer in peers
        ]
        while not all(outbox.matching_status.matching for outbox in outboxes):
            time.sleep(0.01)

        def exchange():
            for outbox in outboxes:
                outbox.put(content)
            for inbox in inboxes:
                assert len(inbox.recv().payload.to_bytes()) == len(content)

        return measure(exchange, n_rounds, barrier)


class Ring:
    """What a run asks of a session: each round is over when both neighbours' messages are here."""

    HEADER_BYTES = 64

    def __init__(self, number, content, n_rounds, barrier):
        self.number, self.neighbours = number, neighbours_of(number)
        self.is_done, self.failure, self.stage = False, None, ("", 0, 0, None)
        self.connected, self.content, self.losses = set(), content, {}
        self.counts, self.round, self.n_rounds, self.times = {}, 0, n_rounds, []
        self.barrier = barrier

    def send_early(self, _):
        """All of an event is sent at its end."""

    def start(self):
        """Nothing is sent before both neighbours are here."""
        return []

    def connect(self, peer):
        """Begin when both are here."""
        self.connected.add(peer)
        return self.next() if len(self.connected) == 2 else []

    def disconnect(self, peer):
        """Nothing may be lost here."""
        raise RuntimeError(f"a link has ended: {peer}")

    def expects(self, *_):
        """All messages are equally long."""
        return len(self.content)

    def next(self):
        """The next round's messages."""
        from vpem.transports.session import Frame

        self.times.append(clocks())
        self.round += 1
        if self.round > self.n_rounds:
            self.is_done = True
            return []
        return [Frame(peer, self.content) for peer in self.neighbours]

    def receive(self, peer, frame):
        """Take a message; the round may be over."""
        assert len(frame) == len(self.content)
        self.counts[peer] = self.counts.get(peer, 0) + 1
        is_over = self.round and all(self.counts.get(one, 0) >= self.round for one in self.neighbours)
        return self.next() if is_over else []


def over_links(number, ports, folder, content, n_rounds, barrier):
    """A whole run over links, with a session that only counts."""
    from vpem.cli.process import own_process
    from vpem.transports.session_runner import Hello, run
    from vpem.transports.wiring import open_wire

    barrier.wait()
    ring = Ring(number, content, n_rounds + 5, barrier)
    with own_process(), open_wire(make_wiring(number, ports, folder)) as wire:
        names = {one: str(one) for one in range(N)}
        outcome = run(ring, wire, Hello(name=str(number), number=number), names=names, patience=60.0, lease=10.0)
    assert outcome.kind == "finished", outcome
    return (np.array(ring.times[-1]) - ring.times[5]) / n_rounds


def measure(exchange, n_rounds, barrier):
    """Seconds a round, and of the processor, after some rounds to warm up."""
    for _ in range(5):
        exchange()
    barrier.wait()
    begin = clocks()
    for _ in range(n_rounds):
        exchange()
    found = (np.array(clocks()) - begin) / n_rounds
    barrier.wait()
    return found


def clocks():
    """The time, and the time of this process on the processor."""
    return time.perf_counter(), time.process_time()


def work(way, number, ports, folder, n_bytes, n_rounds, barrier, results):
    """What one process does."""
    function = {"sockets": over_sockets, "zenoh": over_zenoh, "ours": over_links}[way.split()[0]]
    results.put(function(number, ports, folder if "mTLS" in way else None, bytes(n_bytes), n_rounds, barrier))


def ring(way, folder, n_bytes, n_rounds):
    """Seconds a round, and seconds of the processor."""
    from network.harness import free_ports

    context = multiprocessing.get_context("spawn")
    barrier, results, ports = context.Barrier(N), context.Queue(), free_ports(N)
    arguments = (ports, folder, n_bytes, n_rounds, barrier, results)
    processes = [context.Process(target=work, args=(way, number, *arguments)) for number in range(N)]
    for process in processes:
        process.start()
    found = np.array([results.get(timeout=300) for _ in processes])
    for process in processes:
        process.join()
    return np.array([np.median(found[:, 0]), found[:, 1].sum()])


def main(n_rounds=None):
    """Print all times and ratios."""
    from network.certificates import Authority

    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        for number in range(N):
            authority.sign(f"party-{number}")
        for size, (n_bytes, usual) in SIZES.items():
            turns = [{way: ring(way, folder, n_bytes, n_rounds or usual) for way in WAYS} for _ in range(TURNS)]
            print(f"\n{size} to each of two neighbours, {N} processes")
            for way in WAYS:
                seconds, processor = 1000 * np.median([turn[way] for turn in turns], axis=0)
                line = f"  {way:<10} {seconds:8.2f} ms a round, processor {processor:8.2f} ms"
                if way.startswith("ours"):
                    ratios = np.array([turn[way] / turn[way.replace("ours", "zenoh")] for turn in turns])
                    (low, low_cpu), (high, high_cpu) = ratios.min(axis=0), ratios.max(axis=0)
                    middle, middle_cpu = np.median(ratios, axis=0)
                    line += f"   {middle:.2f} x bare zenoh ({low:.2f} to {high:.2f})"
                    line += f", processor {middle_cpu:.2f} x ({low_cpu:.2f} to {high_cpu:.2f})"
                print(line, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
