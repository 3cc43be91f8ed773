"""Tasks of one sum in one process, message by message, and their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from numpy.typing import NDArray

from vpem.core.network.summation import Summation, outgoing
from vpem.core.network.sums import NO_MEMORY, Memory, Place, Round, Shape
from vpem.core.network.traffic import FLOAT_BYTES, Sending


class Task(NamedTuple):
    """Unit of work in a sum."""

    work: Callable[[], None]
    after: tuple[int, ...] = ()
    """Numbers of the earlier tasks that must be done first."""


Run = Callable[[Sequence[Task], Shape], None]
"""Function that runs the tasks of a sum of a given shape, sequentially or in threads."""


def one_by_one(tasks: Sequence[Task], shape: Shape) -> None:  # noqa: ARG001 (small and large ones)
    """Run the tasks in order."""
    for task in tasks:
        task.work()


class Action(NamedTuple):
    """One agent's work in one task."""

    number: int
    """Position of the agent."""
    begins: bool
    """True for the agent's first action."""
    step: int
    """Step whose messages it receives; -1: none."""
    speaks: tuple[int, ...]
    """Steps of the messages that it can send afterwards."""
    after: tuple[int, ...]
    """Numbers of the actions that must be done first."""


class Plan:
    """All actions of a sum: an agent waits only for the agents whose messages it receives.

    Parameters
    ----------
    schedules : sequence of sequences of Round
        Rounds of each agent, one for each step.
    """

    def __init__(self, schedules: Sequence[Sequence[Round[Any]]]):
        self.schedules = schedules
        self.n_steps = len(schedules[0])
        self.actions: list[Action] = []
        steps = range(self.n_steps)
        hears = [[step for step in steps if own[step].values and own[step].senders] for own in schedules]
        speaks = [[step for step in steps if own[step].values and own[step].receivers] for own in schedules]
        # The agents that are needed first begin first. An agent that receives messages before it sends any begins
        # when it receives them, so that its term is not kept in memory until then. But the agent that finishes last
        # begins before all others: it keeps the shared arrays (see `memo`) alive until all have used them.
        firsts = [[min([*own, self.n_steps]) for own in both] for both in zip(speaks, hears, strict=True)]
        first = [(min(said, heard), heard < said) for said, heard in firsts]
        """Step in which each agent is needed, and True if it waits for messages then."""
        last = max(range(len(schedules)), key=first.__getitem__)
        order = [(-1, False, last, -1)]
        order += [
            (step, waits, number, -1) for number, (step, waits) in enumerate(first) if number != last and not waits
        ]
        # Messages are received one step later, when they are likely to have been sent.
        order += [(step + 1, True, number, step) for number, heard in enumerate(hears) for step in heard]
        latest: dict[int, int] = {}
        """Last action of each agent so far."""
        spoken: dict[tuple[int, int], int] = {}
        """Action that sends a message, by sender and step."""
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
    """One sum that follows a plan.

    Parameters
    ----------
    plan : Plan
    summation : Summation
    places : sequence of Place
        Places of all agents, in the order of their positions.
    begin : callable
        Function that returns the state of an agent before the first step.
    """

    def __init__(self, plan: Plan, summation: Summation, places: Sequence[Place], begin: Callable[[Place], Memory]):
        self.plan, self.summation, self.places, self._begin = plan, summation, places, begin
        self.states: list[Memory] = [NO_MEMORY] * len(places)
        """State of each agent; at the end, the state after the last step."""
        self._inboxes: list[dict[tuple[int, int], NDArray[Any]]] = [{} for _ in places]
        """Messages that each agent has not yet received, by step and sender."""
        self._sizes: dict[tuple[int, int], int] = {}
        """Length of each message in bytes, by sender and step."""

    def tasks(self) -> list[Task]:
        """Return all tasks of the sum."""
        return [Task(partial(self._do, action), action.after) for action in self.plan.actions]

    def _do(self, action: Action) -> None:
        """Begin, or receive the messages of a step; then send all messages that precede the next receipt."""
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
        """Return all messages, step by step; some also contain a decision."""
        found = []
        for step, parts in enumerate(zip(*self.plan.schedules, strict=True)):
            for sender, part in enumerate(parts):
                for receiver in part.receivers:
                    n_bytes = FLOAT_BYTES * n_decisions * part.decision
                    if part.values and receiver not in part.spared:
                        n_bytes += self._sizes[sender, step]
                    found.append(Sending(self.places[sender].position, receiver, 1, n_bytes))
        return found
