"""The server of a study on Flower: its questions, and their expected time. This module does not import Flower."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from vpem.core.network.parties import SERVER, make_network
from vpem.flower.client import FIT, MATCH, Config, hello_of_match, needs_keys, read_config
from vpem.flower.turns import Answer, Failed, Question, Stopped, drive, open_run
from vpem.planning.planner import Study as Planned
from vpem.planning.planner import fit_exchanges
from vpem.studies.fields import StudyFileError
from vpem.studies.folder import open_folder
from vpem.studies.joining import LOG, restore
from vpem.studies.ledger import noting
from vpem.studies.local_trial import find_files
from vpem.studies.match_run import NOTHING, make_matching
from vpem.studies.private import PartyFile, read_party
from vpem.studies.seats import Seat, matched_seat, take_seat
from vpem.studies.shared import Study
from vpem.studies.telling import Journal, Lines, Note
from vpem.transports.outcomes import Here, Outcome, Progress
from vpem.transports.session import AnySession
from vpem.words import as_count, as_time

ROUND = 9.0
"""Measured duration of a question on a federation, in seconds."""
ROWS = 1000
"""Assumed number of rows; apart from a few at the start, the number of questions does not depend on it."""


class Platform(Protocol):
    """The part of Flower that the server needs."""

    def nodes(self) -> list[int]:
        """Return the connected nodes."""

    def ask(self, questions: Mapping[int, Question]) -> Mapping[int, Answer]:
        """Send questions and wait for all answers; a missing answer is replaced by one with a `failure`."""


def find_server(study: Study, config: Config) -> PartyFile:
    """Read the server's own file: the one in the run's config or, in a simulation, the one in the parties' folder."""
    if config.get("server"):
        return read_party(str(config["server"]), study)
    folder = Path(str(config.get("folder") or ""))
    if not config.get("folder") or not folder.is_dir():
        raise StudyFileError(
            "expected the path of the server's own file, on the machine of the SuperLink, as server in the run's "
            "config, got none; try flwr run . NAME --run-config 'server=\"/home/vpem/server.toml\"'"
        )
    return find_files(study, folder)[SERVER]


def serve(config: Config, platform: Platform, write: Callable[[str], object]) -> int:
    """Run a study as its server until all parties are done; return the number of questions asked.

    Parameters
    ----------
    config : mapping
        Config of the run.
    platform : Platform
    write : callable
        Receives lines of text for the user.

    Raises
    ------
    Stopped
        If the run ends before the study is done; the next run resumes from the checkpoints.
    """
    study = read_config(config)
    own = find_server(study, config)
    seat = take_seat(study, own, insecure=not needs_keys(study), fresh=True)
    folder = seat.party.folder
    with open_folder(folder, seat.n_bytes), Journal(folder / LOG) as journal:
        journal.watch = Lines(write).tell
        for note in seat.notes:
            journal.tell(Note(note))
        try:
            found = _Serving(seat, platform, journal).run()
        except Stopped as stopped:
            journal.tell(Outcome("failed" if isinstance(stopped, Failed) else "gave up", str(stopped)))
            kind, where = type(stopped), f"the state is in {folder} and in the parties' folders"
            remedy = "the next flwr run goes on from it"
            if kind is Failed:
                remedy = "to begin again after a change, remove state and state.earlier from all of them"
            raise kind(f"{stopped}; {where}: {remedy}") from None
        journal.tell(Outcome("finished"))
        return found


class _Serving:
    """A run of the server."""

    def __init__(self, seat: Seat, platform: Platform, journal: Journal):
        self.seat, self.platform, self.journal = seat, platform, journal
        self.study = seat.study
        self.names = {number: one.name for number, one in enumerate(self.study.parties)}
        self.sent = self.received = self.n_questions = 0
        self.seconds = 0.0
        """Duration of the last question."""
        self.n_rows = 1

    def run(self) -> int:
        journal, study = self.journal, self.study
        journal.begin(study, self.seat.number, set())
        nodes = self._wait()
        if self.seat.unmatched is not None:
            nodes = self._match(nodes)
            self.seat = matched_seat(self.seat, NOTHING)
        session, _ = restore(self.seat, journal)
        with noting(session, study, self.seat.party.folder, FIT, journal):
            opened = open_run(session, self.seat.hello(), self.names, nodes, self.ask)
            for name in self.names.values():
                journal.tell(Here(name))
            self.n_rows = next(given.hello.rows for given in opened.answers.values() if given.hello is not None) or 1
            journal.tell(Note(expected_time(study, self.n_rows, self.seconds)))
            drive(session, opened, self.names, self.ask, watch=partial(self._show_fit, session))
        return self.n_questions

    def ask(self, questions: Mapping[int, Question]) -> Mapping[int, Answer]:
        """Ask the platform; measure the time, and count the questions and bytes."""
        began = time.monotonic()
        answers = self.platform.ask(questions)
        self.seconds = time.monotonic() - began
        self.n_questions += 1
        self.sent += sum(len(one) for asked in questions.values() for some in asked.frames.values() for one in some)
        self.received += sum(len(one) for given in answers.values() for one in given.frames)
        return answers

    def _wait(self) -> list[int]:
        """Wait until there are as many nodes as parties, and return the nodes."""
        wanted, end = len(self.names), time.monotonic() + self.study.patience
        while len(found := self.platform.nodes()) < wanted:
            if time.monotonic() > end:
                raise Stopped(
                    f"expected {wanted} nodes, one of each party, got {len(found)} within "
                    f"{as_time(self.study.patience)}; start the SuperNodes of all parties"
                )
            time.sleep(0.5)
        return found

    def _match(self, nodes: list[int]) -> list[int]:
        """Let the parties find their common rows, unless they know them; return the parties' nodes."""
        unmatched = self.seat.unmatched
        assert unmatched is not None, "there is something to match"
        session = make_matching(self.study, self.seat.number, unmatched, self.seat.credentials)
        with noting(session, self.study, self.seat.party.folder, MATCH, self.journal):
            opened = open_run(session, hello_of_match(self.seat), self.names, nodes, self.ask)
            known = {given.matched for given in opened.answers.values()}
            if len(known) > 1 or None in known:
                watch = partial(self._show, session)
                drive(session, opened, self.names, self.ask, purpose=MATCH, watch=watch)
        return list(opened.node_of.values())

    def _show(self, session: AnySession, *_: object) -> None:
        self.journal.tell(Progress(*session.stage, self.sent, self.received))

    def _show_fit(self, session: AnySession, number: int, _: object) -> None:
        if number == 2:  # the first questions may include starting processes or compiling
            self.journal.tell(Note(expected_time(self.study, self.n_rows, self.seconds, number + 1)))
        self._show(session)


def most_questions(study: Study, n_rows: int, kmeans_iterations: int = 60) -> int:
    """Largest number of questions of a fit without repairs: one for the meeting, each sum, and the last total."""
    asked = study.model
    network = make_network({one.name: [place] for place, one in enumerate(study.parties)}, "star")
    planned = Planned(
        n_rows=max(n_rows, asked.components),
        n_components=asked.components,
        init_params=asked.init,
        n_init=asked.starts,
        accelerate=asked.accelerate,
    )
    parts = fit_exchanges(study.summation, network, planned, asked.max_iter, kmeans_iterations)
    return 2 + parts.total()


def most_time(study: Study) -> str:
    """Describe the largest number of questions of a fit, and their time on a federation."""
    most = most_questions(study, ROWS)
    return (
        f"at most {most} questions to all parties, of about {ROUND:g} s each on a federation: "
        f"{as_time(most * ROUND)}; the run itself measures them, and says how long it will take"
    )


def expected_time(study: Study, n_rows: int, seconds: float, done: int = 1) -> str:
    """Describe the remaining time of a run, given the seconds per question and the number of questions done."""
    most = max(most_questions(study, n_rows) - done, 0)
    return (
        f"a question to all parties takes {as_time(seconds)} here; this fit takes at most "
        f"{as_count(most, 'question')} more, {as_time(most * seconds)}, and fewer if it converges sooner"
    )
