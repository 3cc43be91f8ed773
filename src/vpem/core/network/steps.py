"""One sum in one process, as agents make it, message by message: what there is to do, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from numpy.typing import NDArray

from vpem.core.network.summation import NO_MEMORY, Memory, Place, Round, Shape, Summation, outgoing
from vpem.core.network.traffic import FLOAT_BYTES, Sending


class Task(NamedTuple):
    """Something to do in a sum."""

    work: Callable[[], None]
    after: tuple[int, ...] = ()
    """Numbers of the tasks before it that must be done first."""


Run = Callable[[Sequence[Task], Shape], None]
"""How to do the tasks of a sum of this shape: one after the other, or in threads."""


def one_by_one(tasks: Sequence[Task], shape: Shape) -> None:  # noqa: ARG001 (small and large ones)
    """Do each, in order."""
    for task in tasks:
        task.work()


class Action(NamedTuple):
    """What one agent does at a time."""

    number: int
    """The agent's position."""
    begins: bool
    """Whether it is its first."""
    step: int
    """Whose messages it takes; -1: none."""
    speaks: tuple[int, ...]
    """Steps of the messages that it can make then."""
    after: tuple[int, ...]
    """Numbers of earlier actions."""


class Plan:
    """All actions of a sum: an agent waits for those whose messages it takes, and for no others.

    Parameters
    ----------
    schedules : sequence of sequences of Round
        Each agent's part in each step.
    """

    def __init__(self, schedules: Sequence[Sequence[Round[Any]]]):
        self.schedules = schedules
        self.n_steps = len(schedules[0])
        self.actions: list[Action] = []
        steps = range(self.n_steps)
        hears = [[step for step in steps if own[step].values and own[step].senders] for own in schedules]
        speaks = [[step for step in steps if own[step].values and own[step].receivers] for own in schedules]
        # Who is needed first begins first; who takes messages before it speaks begins when it takes them, so that its
        # term need not wait for them. But the one that is done last begins before all others: it holds what they have
        # in common (see `sharing`) until all have used it.
        firsts = [[min([*own, self.n_steps]) for own in both] for both in zip(speaks, hears, strict=True)]
        first = [(min(said, heard), heard < said) for said, heard in firsts]
        """When each is needed, and whether it waits for messages then."""
        last = max(range(len(schedules)), key=first.__getitem__)
        order = [(-1, False, last, -1)]
        order += [
            (step, waits, number, -1) for number, (step, waits) in enumerate(first) if number != last and not waits
        ]
        # Messages are taken a step later, when they are likely to be there.
        order += [(step + 1, True, number, step) for number, heard in enumerate(hears) for step in heard]
        latest: dict[int, int] = {}
        """Each agent's last action so far."""
        spoken: dict[tuple[int, int], int] = {}
        """In which action a message is made, by sender and step."""
        for _, _, number, step in sorted(order):
            begins = number not in latest
            after = {0} if begins and self.actions else set()
            if not begins:
                after.add(latest[number])
            if step >= 0:
                after.update(spoken[sender, step] for sender in schedules[number][step].senders)
            until = min((one for one in hears[number] if one > step), default=self.n_steps)
            made = tuple(one for one in speaks[number] if step < one <= until)
            latest[number] = len(self.actions)
            spoken |= dict.fromkeys(((number, one) for one in made), len(self.actions))
            self.actions.append(Action(number, begins, step, made, tuple(sorted(after))))


class Steps:
    """One sum by a plan.

    Parameters
    ----------
    plan : Plan
    summation : Summation
    places : sequence of Place
        Of all agents, in the order of their positions.
    begin : callable
        An agent's memory before the first step.
    """

    def __init__(self, plan: Plan, summation: Summation, places: Sequence[Place], begin: Callable[[Place], Memory]):
        self.plan, self.summation, self.places, self._begin = plan, summation, places, begin
        self.states: list[Memory] = [NO_MEMORY] * len(places)
        """Each agent's; in the end, after the last step."""
        self._inboxes: list[dict[tuple[int, int], NDArray[Any]]] = [{} for _ in places]
        """Messages to each agent, by step and sender, until it takes them."""
        self._sizes: dict[tuple[int, int], int] = {}
        """Bytes of the messages, by sender and step."""

    def tasks(self) -> list[Task]:
        """All there is to do."""
        return [Task(partial(self._do, action), action.after) for action in self.plan.actions]

    def _do(self, action: Action) -> None:
        """Begin, or take the messages of a step; and make those that are sent before the next ones are taken."""
        number, step = action.number, action.step
        place, own = self.places[number], self.plan.schedules[number]
        state = self._begin(place) if action.begins else self.states[number]
        if step >= 0:
            received = {sender: self._inboxes[number].pop((step, sender)) for sender in own[step].senders}
            state = self.summation.combine(place, step, state, received)
        self.states[number] = state
        for one in action.speaks:
            message = outgoing(self.summation, place, one, own[one].kind, state)
            self._sizes[number, one] = message.nbytes
            for receiver in own[one].receivers:
                if number in self.plan.schedules[receiver][one].senders:
                    self._inboxes[receiver][one, number] = message

    def sendings(self, n_decisions: int) -> list[Sending]:
        """All messages, step by step; a decision rides on some."""
        found = []
        for step, parts in enumerate(zip(*self.plan.schedules, strict=True)):
            for sender, part in enumerate(parts):
                for receiver in part.receivers:
                    n_bytes = FLOAT_BYTES * n_decisions * part.decision
                    if part.values and receiver not in part.spared:
                        n_bytes += self._sizes[sender, step]
                    found.append(Sending(self.places[sender].position, receiver, 1, n_bytes))
        return found
