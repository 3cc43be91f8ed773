"""python party.py STUDY NUMBER [CHANGES]: one party of a study in a JSON file, for tests of real networks."""

import json
import os
import re
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from vpem import Consensus, Differences, Gaussian, Star, Tree
from vpem.agents import Agent, Agreement, Session, Settings
from vpem.cli.process import own_process
from vpem.studies.folder import Belongs, Checkpoints
from vpem.transports.session_runner import Hello, run
from vpem.transports.wiring import Peer, Tls, Wiring, open_wire

SUMS = {
    "consensus": Consensus(4),
    "paper": Consensus(100),
    "tree": Tree(),
    "star": Star(),
    "differences": Differences(Tree()),
    "differences on a star": Differences(Star()),
}
CODES = {"finished": 0, "failed": 1, "gave up": 4, "refused": 5, "interrupted": 130}


def most_bytes():
    """Of memory, so far; what `getrusage` says may be the parent's."""
    path = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+) kB", path.read_text() if path.exists() else "")
    return 1024 * int(found[1]) if found else 0


def save(path, content):
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def make_session(study, folder, number, neighbours):
    settings = Settings(density=Gaussian(), **study["settings"])
    about = {"summation": SUMS[study["sum"]], "seed": study["seed"], "init_params": study["init"]}
    agreement = Agreement(settings=settings, **about)
    table = folder / f"{number}.npy"
    X = np.load(table) if table.exists() else None
    agent = Agent(number, neighbours, agreement, X, name=str(number))
    if study.get("files"):  # as `vpem join` saves
        kept = folder / f"{number}.files"
        kept.mkdir()
        return Session(agent, save_parts=Checkpoints(kept, Belongs(study["name"], str(number), {})).save), X
    state = folder / f"{number}.state"
    if state.exists():
        return Session.restore(agent, state.read_bytes(), save=lambda content: save(state, content)), X
    return Session(agent, save=lambda content: save(state, content)), X


def make_wiring(study, number, neighbours):
    peers = tuple(
        Peer(
            number=peer,
            name=str(peer),
            address=study["addresses"].get(f"{number}-{peer}", study["listen"][peer]),
            certificate=f"party-{peer}",
            connect=number < peer,
        )
        for peer in neighbours
    )
    tls = study["tls"] and Tls(**{name: Path(path) for name, path in study["tls"][number].items()})
    return Wiring(
        study=study["name"], number=number, listen=study["listen"][number], peers=peers, tls=tls, lease=study["lease"]
    )


def main(path, number, changes):
    bare = most_bytes()
    folder, study = Path(path).parent, {**json.loads(Path(path).read_text()), **json.loads(changes)}
    neighbours = [sum(link) - number for link in study["links"] if number in link]
    session, X = make_session(study, folder, number, neighbours)
    log = (folder / f"{number}.log").open("a", buffering=1)
    log.write(json.dumps({"event": "Bare", "most_bytes": bare}) + "\n")
    begin = time.monotonic()

    def watch(told):
        line = {"event": type(told).__name__, "after": round(time.monotonic() - begin, 3), **asdict(told)}
        line |= {"cpu": time.process_time(), "thread_cpu": time.thread_time(), "most_bytes": most_bytes()}
        log.write(json.dumps(line) + "\n")

    hello = Hello(
        name=str(number),
        number=number,
        fields=study["fields"],
        rows=None if X is None else len(X),
        order=None if X is None else "same",
        **study.get("hello", {}),
    )
    with own_process(), open_wire(make_wiring(study, number, neighbours)) as wire:
        outcome = run(
            session,
            wire,
            hello,
            names={one: str(one) for one in {end for link in study["links"] for end in link}},
            patience=study["patience"],
            lease=study["lease"],
            watch=watch,
            without=study.get("without", ()),
        )
    log.write(json.dumps({"event": "Outcome", **asdict(outcome)}) + "\n")
    model = session.agent.model
    if outcome.kind == "finished" and model.block is not None:
        unfinished = folder / f"{number}.unfinished.npz"
        np.savez(unfinished, weights=model.weights, means=model.block.means, covariances=model.block.covariances)
        unfinished.replace(folder / f"{number}.npz")
    print(json.dumps({"outcome": outcome.kind, "threads": threading.active_count()}))
    return CODES[outcome.kind]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "{}"))
