"""python -m network.soak [KILLS] [SEED] [PART ...]: processes killed at random moments and restarted; `make soak`.

KILLS counts for each part: the meeting, the matching of rows, the fit and the prediction of new rows (meeting, match,
fit, predict), or for the parts that are named. A study has up to ten kills, of any party or of the server, also of
one that has only just started again, or while another is dead. In the end its numbers must be those of the
simulation, and matched rows the same at all parties. The exit code is 1 if a study has others, or does not end.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

from clinics import NAMES, Clinics, Unmatched
from network.harness import RING, STAR, Study
from network.members import Members, check_matched, check_scores

KILLS_OF_A_STUDY = 10
KILLS_OF_A_PREDICTION = 2
ITERATIONS = 40
"""Between two kills of a fit, roughly."""
TREE = [[0, 1], [0, 2], [1, 3]]
KINDS = {
    "ring, consensus": {"links": RING, "n_parties": 4, "adding": "consensus"},
    "tree, differences, mTLS": {"links": TREE, "n_parties": 4, "adding": "differences", "secure": True},
    "star, differences, mTLS": {"links": STAR, "n_parties": 3, "adding": "differences on a star", "secure": True},
}
LINKS = ("star", "tree", "ring")


def of_agents(part, turn, n_kills, draw):
    """A study of agents, killed in its meetings or in its fit; its kind, and how many kills there were."""
    name = list(KINDS)[turn % len(KINDS)]
    chosen = {**KINDS[name], "max_iter": ITERATIONS * (n_kills + 1), "forked": True}
    with tempfile.TemporaryDirectory() as folder, Study(Path(folder), chosen.pop("links"), **chosen) as study:
        study.start()
        n_done = (disturb_meetings if part == "meeting" else disturb_fit)(study, n_kills, draw)
        study.check()
    return name, n_done


def disturb_meetings(study, n_kills, draw):
    """Kill so soon after each other that all are still meeting: they do so again after each loss."""
    for turn in range(n_kills):
        time.sleep(draw.random() * 0.3)
        victim = draw.choice(study.numbers)
        if study.processes[victim].poll() is not None:
            return turn
        study.kill(victim)
        study.start(victim)
    return n_kills


def disturb_fit(study, n_kills, draw):
    """Kill and start again so often, at random iterations."""
    for turn in range(n_kills):
        watched = draw.randrange(study.n_parties)
        study.wait_for_checkpoint(watched, 1 + ITERATIONS * turn + draw.randrange(ITERATIONS))
        time.sleep(draw.random() * 0.05)
        victim = draw.choice(study.numbers)
        study.kill(victim)
        study.start(victim)
        if draw.random() < 0.2:  # once more, before it is back
            time.sleep(draw.random())
            study.kill(victim)
            study.start(victim)
    return n_kills


def of_matching(_, turn, n_kills, draw):
    """Parties that match their rows under kills, and then fit."""
    links = LINKS[turn % len(LINKS)]
    with tempfile.TemporaryDirectory() as folder:
        model = 'init = "random"\nmax_iter = 5'
        made = Unmatched(Path(folder) / "study", "inner", model=model, links=links, n_rows=1000, starts=1, lease="1s")
        with Members(made, "join") as members:
            n_done = members.disturb(n_kills, draw, longest=1.5)
            members.check_codes()
        check_matched(made, len(made.joined("inner")[1]))
    return links, n_done


class Predictions:
    """Requests to a study that was fitted once."""

    def __init__(self):
        self._folders = {}

    def __call__(self, _, turn, n_kills, draw):
        """Score new rows under kills."""
        links = LINKS[turn % len(LINKS)]
        made, expected = self._fitted(links)
        X = made.X[:200] + draw.random()
        ids = made.new_rows(X)
        options = {name: [made.folder / name / "new.csv", "-o", made.folder / name / "scores.csv"] for name in NAMES}
        with Members(made, "predict", {**options, "server": ["--rows", len(X)]}, secure=False) as members:
            n_done = members.disturb(min(n_kills, KILLS_OF_A_PREDICTION), draw, longest=0.6)
            members.check_codes()
        check_scores(made, ids, expected.predict_proba(X))
        return links, n_done

    def _fitted(self, links):
        if links not in self._folders:
            folder = tempfile.TemporaryDirectory()
            made = Clinics(Path(folder.name) / "study", links=links, n_rows=400, lease="1s", patience="20s")
            with Members(made, "join", secure=False) as members:
                members.start()
                members.check_codes()
            self._folders[links] = folder, made, made.expected()
        return self._folders[links][1:]


PARTS = {"meeting": of_agents, "match": of_matching, "fit": of_agents, "predict": Predictions()}


def main(n_kills=100, seed=0, *parts):
    """Run studies until there were so many kills in each part; whether all had the right numbers."""
    draw, is_right, begin = random.Random(int(seed)), True, time.monotonic()
    for part in parts or PARTS:
        n_done = n_failed = turn = 0
        while n_done < int(n_kills):
            count, since = min(KILLS_OF_A_STUDY, int(n_kills) - n_done), time.monotonic()
            try:
                name, count = PARTS[part](part, turn, count, draw)
                told = "as without"
            except AssertionError as error:
                name, told = f"study {turn}", f"FAILED: {error}"
                n_failed += 1
            n_done, turn = n_done + count, turn + 1
            print(f"{part}, {name}: {count} kills in {time.monotonic() - since:.0f} s, {told}", flush=True)
        is_right = is_right and not n_failed
        print(f"{part}: {n_done} kills in {turn} studies, of which {n_failed} failed", flush=True)
    print(f"{time.monotonic() - begin:.0f} s")
    return is_right


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
