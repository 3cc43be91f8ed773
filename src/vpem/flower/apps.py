"""A study's server and parties as Flower apps. No other module imports Flower.

The folder that `vpem flower init` writes names `server` and `client` as its components.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from vpem.flower.client import read_config, take_question
from vpem.flower.server import serve
from vpem.flower.turns import Answer, Question, Stopped, pack, unpack

RECORD, CONTENT = "vpem", "content"
PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two polls for answers: at first, and at most."""


def _wrap(content: bytes) -> ArrayRecord:
    """Return bytes as an array, which the platform sends in pieces."""
    return ArrayRecord({CONTENT: Array(np.frombuffer(content, dtype=np.uint8))})


def _unwrap(record: Any) -> bytes:
    found: bytes = record[CONTENT].numpy().tobytes()
    return found


class GridPlatform:
    """Flower's grid as a study's server sees it.

    Parameters
    ----------
    grid : Grid
    patience : float
        Seconds to wait for an answer.
    """

    def __init__(self, grid: Any, patience: float):
        self.grid, self.patience = grid, patience

    def nodes(self) -> list[int]:
        """Return the connected nodes."""
        return sorted(self.grid.get_node_ids())

    def ask(self, questions: Mapping[int, Question]) -> dict[int, Answer]:
        """Send questions and poll for answers, more often than Flower's own loop, which waits for 3 s each time."""
        waiting: dict[str, int] = {}
        for node, question in questions.items():
            content = RecordDict({RECORD: _wrap(pack(question))})
            group = f"{question.purpose} {question.number}"
            message = Message(content, node, MessageType.TRAIN, ttl=self.patience + 60, group_id=group)
            (name,) = self.grid.push_messages([message])
            if not name:
                raise Stopped("the SuperLink has not taken a question; see its log")
            waiting[name] = node
        late = Answer(failure=f"its node has not answered within {self.patience:g} s")
        answers = dict.fromkeys(questions, late)
        end, pause = time.monotonic() + self.patience, PAUSE
        while waiting and time.monotonic() < end:
            for reply in self.grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                answers[node] = _answer(reply)
                pause = PAUSE
            if waiting:
                time.sleep(pause)
                pause = min(1.2 * pause, LONGEST_PAUSE)
        return answers


def _answer(reply: Any) -> Answer:
    if reply.has_error():
        return Answer(failure=f"its node has not answered ({reply.error.reason})")
    try:
        return unpack(_unwrap(reply.content[RECORD]), Answer)
    except (ValueError, KeyError, TypeError) as error:  # a node that does not run this app
        return Answer(failure=f"its node has answered something else ({type(error).__name__})")


def run_server(grid: Grid, context: Context) -> None:
    """Run a study as its server, from start to end."""
    study = read_config(context.run_config)
    platform = GridPlatform(grid, study.patience)

    def write(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    n_questions = serve(context.run_config, platform, write)
    write(f"the run has taken {n_questions} questions")


def run_client(message: Message, context: Context) -> Message:
    """Answer one question to one party."""
    before = _unwrap(context.state[RECORD]) if RECORD in context.state else None
    run = f"{context.run_id}"
    content = _unwrap(message.content[RECORD]) if RECORD in message.content else b""
    given, kept = take_question(context.run_config, context.node_config, run, content, before)
    context.state[RECORD] = _wrap(kept)
    return Message(RecordDict({RECORD: _wrap(given)}), reply_to=message)


server: Any = ServerApp()
server.main()(run_server)
client: Any = ClientApp()
client.train()(run_client)
