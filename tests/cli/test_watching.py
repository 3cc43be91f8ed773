"""What a party shows while it takes part: lines, and in a terminal a bar for the tokens of a matching."""

import io

import pytest
from rich.console import Console

from vpem.cli import join_command
from vpem.studies import telling
from vpem.studies.telling import Begun, Lines, Tokens
from vpem.transports.outcomes import Here, Outcome, Problem, Progress, Waiting
from vpem.transports.presence import Awaited

BEGUN = (Begun("clinics", "north", ("east",), 100, 1), Here("east"))


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [100.0]
    monkeypatch.setattr(telling.time, "monotonic", lambda: now[0])
    return now


def test_lines_say_how_far_the_tokens_are_and_how_long_the_rest_takes(clock):
    said = []
    tell = Lines(said.append).tell
    for event in BEGUN:
        tell(event)
    said.clear()
    for done in range(0, 1001, 100):
        tell(Tokens(done, 1000))
        clock[0] += 1.0
    assert said[0] == "match: 0 % of the tokens"
    assert said[1] == "match: 20 % of the tokens; about 8.0 s more"
    assert len(said) <= 1 + 10 // telling.EVERY
    assert said[-1] == "match: 100 % of the tokens; waiting for the others' tokens"
    said.clear()
    tell(Tokens(10, 1000))  # all have begun again
    clock[0] += 3.0
    tell(Tokens(20, 1000))
    assert said[-1] == "match: 2 % of the tokens; about 4.9 min more"


def test_a_terminal_has_a_bar_and_no_lines_of_tokens(monkeypatch, clock):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100, color_system=None, legacy_windows=False)
    monkeypatch.setattr(join_command, "out", console)

    def look(live):
        shown.seek(0)
        shown.truncate()
        live.refresh()
        return shown.getvalue()

    with join_command.watching() as tell:
        live = console._live_stack[-1] if hasattr(console, "_live_stack") else console._live
        for event in BEGUN:
            tell(event)
        tell(Tokens(0, 400))
        clock[0] += 6.0
        tell(Tokens(100, 400))
        found = look(live)
        assert "matching rows" in found
        assert "\u2501" in found, "the bar"
        assert "25 %" in found
        assert "about 18.0 s more" in found
        assert "of the tokens" not in found
        tell(Outcome("finished"))
        tell(Progress("iterate", 0, 3, -1.5, 10, 20))
        assert "iteration 3" in look(live)
        assert "matching rows" not in look(live)


def test_without_a_terminal_there_are_lines(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(join_command, "out", Console(file=shown, force_terminal=False, width=100))
    with join_command.watching() as tell:
        tell(Tokens(100, 400))
    assert shown.getvalue() == "match: 25 % of the tokens\n"


def test_a_wait_says_for_whom_since_when_and_what_that_one_said_last(clock):
    said = []
    lines = Lines(said.append)
    for event in BEGUN:
        lines.tell(event)
    said.clear()
    east = Awaited("east", 40.0, "iteration 3, waiting for west", 2.0)
    lines.tell(Waiting((east, Awaited("west", 50.0), Awaited("south", 9.0, refused="it has other rows"))))
    assert said == [
        'waiting for east (for 40.0 s; it said "iteration 3, waiting for west" 2.0 s ago), '
        "west (for 50.0 s; never heard), south (for 9.0 s; refused: it has other rows)"
    ]
    clock[0] += 10.0
    assert lines.state.waiting().startswith('east (for 50.0 s; it said "iteration 3, waiting for west" 12.0 s ago)')
    lines.tell(Waiting(()))
    assert lines.state.waiting() == ""
    assert len(said) == 1


def test_a_refusal_that_repeats_has_its_count():
    said = []
    lines = Lines(said.append)
    lines.tell(Problem("refused 10.0.0.1:5: it shows the certificate of 'x'"))
    lines.tell(Problem("10.0.0.1:7450: it does not accept this party's certificate (UnknownCA)", 61))
    assert said == [
        "refused: 10.0.0.1:5: it shows the certificate of 'x'",
        "refused: 10.0.0.1:7450: it does not accept this party's certificate (UnknownCA) (61 times so far)",
    ]
