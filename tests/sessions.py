"""A network of sessions with links that break, and processes that die; events come in any order that links allow."""

import shutil
from collections import deque
from contextlib import suppress
from functools import partial

from vpem.files import replacing
from vpem.studies.folder import Belongs, Checkpoints
from vpem.transports.session import Session

UP, DOWN = "up", "down"


class Network:
    """Sessions, each with a file, and what is on its way between them.

    Parameters
    ----------
    make : callable
        Returns all agents, new.
    folder : Path
    early : bool
        Whether frames go out before an event's work is done.
    in_folders : bool
        Whether each has a folder of checkpoints, as `vpem join` has, in place of one file.
    """

    def __init__(self, make, folder, early=False, in_folders=False):
        self.make, self.folder, self.early, self.in_folders = make, folder, early, in_folders
        self.sessions, self.lines = {}, {}
        self.n_saved = dict.fromkeys((agent.number for agent in make()), 0)
        self.neighbours = {agent.number: agent.neighbours for agent in make()}
        for number in self.neighbours:
            self.path(number).unlink(missing_ok=True)
            shutil.rmtree(self.folder / str(number), ignore_errors=True)

    def path(self, number):
        return self.folder / f"{number}.state"

    def save(self, number, content):
        with replacing(self.path(number)) as name:
            name.write_bytes(content)
        self.n_saved[number] += 1

    def born(self, number):
        """A process begins: with what its file holds, if there is one. Nothing is linked yet."""
        [agent] = [agent for agent in self.make() if agent.number == number]

        def save(content):
            self.save(number, content)

        if self.in_folders:
            self.sessions[number] = self.in_folder(number, agent)
        elif self.path(number).exists():
            self.sessions[number] = Session.restore(agent, self.path(number).read_bytes(), save=save)
        else:
            self.sessions[number] = Session(agent, save=save)
        if self.early:
            self.sessions[number].send_early(partial(self.post, number))
        self.post(number, self.sessions[number].start())

    def in_folder(self, number, agent):
        """A session with a folder, as it was left."""
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        checkpoints = Checkpoints(folder, Belongs("a study", str(number), {}))
        saved = checkpoints.load()
        if saved is None:
            return Session(agent, save_parts=checkpoints.save)
        return Session.restore(agent, saved, save_parts=checkpoints.save)

    def link(self, one, other):
        """A new link; what the old one still carried is lost, and neither end need have noticed that it ended."""
        self.lines[one, other], self.lines[other, one] = deque([UP]), deque([UP])

    def cut(self, one, other):
        """A link ends; each end first gets what was on its way."""
        for line in ((one, other), (other, one)):
            if line in self.lines:
                self.lines[line].append(DOWN)

    def kill(self, number):
        """A process dies; what it has sent may still arrive."""
        del self.sessions[number]
        for peer in self.neighbours[number]:
            self.lines.pop((peer, number), None)
            if (number, peer) in self.lines:
                self.lines[number, peer].append(DOWN)

    def start(self):
        """All processes and all links."""
        for number in self.neighbours:
            self.born(number)
        self.heal()
        return self

    def heal(self):
        """Every process runs, and every link is up."""
        for number in self.neighbours:
            if number not in self.sessions:
                self.born(number)
        for one in self.neighbours:
            for other in self.neighbours[one]:
                line, back = self.lines.get((one, other)), self.lines.get((other, one))
                broken = line is None or back is None or DOWN in line or DOWN in back
                if one < other and (broken or not self.is_up(one, other)):
                    self.link(one, other)

    def is_up(self, one, other):
        """Whether both ends use the link, or will when they hear of it."""
        return all(
            UP in self.lines[sender, receiver] or sender in self.sessions[receiver].connected
            for sender, receiver in ((one, other), (other, one))
        )

    def post(self, number, frames):
        for frame in frames:
            assert frame.receiver in self.sessions[number].connected
            if (number, frame.receiver) in self.lines:
                self.lines[number, frame.receiver].append(frame.content)

    def ready(self):
        """Lines on which something has arrived."""
        return sorted(line for line, items in self.lines.items() if items and line[1] in self.sessions)

    def deliver(self, line, change=None):
        """Hand over what comes next on a line; returns the frames of the event, which are not posted yet."""
        sender, receiver = line
        session, item = self.sessions[receiver], self.lines[line].popleft()
        if item == UP:
            return session.connect(sender)
        if item == DOWN:
            del self.lines[line]
            return session.disconnect(sender)
        frame = item if change is None else change(item)
        length = session.expects(sender, frame[: session.HEADER_BYTES]) if len(frame) >= session.HEADER_BYTES else 1
        return session.receive(sender, frame) if length else []

    def die_at_work(self, line):
        """Hand over what comes next on a line to a process that dies when it has sent the first frames of the event.

        So it does before it works on, if it has early ones; if not, what the event returns is not posted.
        """

        def send(frames):
            self.post(line[1], frames)
            raise InterruptedError

        self.sessions[line[1]].send_early(send)
        with suppress(InterruptedError):
            self.deliver(line)

    def step(self, line, change=None):
        """Hand over and post; links that a session wants closed are closed."""
        frames = self.deliver(line, change)
        self.post(line[1], frames)
        if line[0] not in self.sessions[line[1]].connected and line in self.lines and DOWN not in self.lines[line]:
            del self.lines[line]
            if line[::-1] in self.lines:
                self.lines[line[::-1]].append(DOWN)

    def run(self, choose=min, most=20_000):
        """Until nothing is on its way, but never more than so many events."""
        for _ in range(most):
            ready = self.ready()
            if not ready:
                return self
            self.step(choose(ready))
        raise AssertionError("it does not end")

    @property
    def agents(self):
        return [session.agent for _, session in sorted(self.sessions.items())]
