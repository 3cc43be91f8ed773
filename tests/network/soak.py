"""python -m network.soak [KILLS] [SEED]: parties killed at random moments, and started again; `make soak`.

Each study has ten kills, of any party or of the server, also of one that has only just started again. In the end its
parameters must be those of the simulation to 1e-9. The exit code is 1 if a study has others, or does not end.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

from network.harness import RING, STAR, Study

KILLS_OF_A_STUDY = 10
ITERATIONS = 40
"""Between two kills, roughly."""
TREE = [[0, 1], [0, 2], [1, 3]]
KINDS = {
    "ring, consensus": {"links": RING, "n_parties": 4, "adding": "consensus"},
    "tree, differences, mTLS": {"links": TREE, "n_parties": 4, "adding": "differences", "secure": True},
    "star, differences, mTLS": {"links": STAR, "n_parties": 3, "adding": "differences on a star", "secure": True},
}


def disturb(study, n_kills, draw):
    """Kill and start again so often, at random moments."""
    study.start()
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
    study.check()


def main(n_kills=100, seed=0):
    """Run studies until there were so many kills; whether all had the right numbers."""
    draw, n_done, n_right, begin = random.Random(seed), 0, 0, time.monotonic()
    while n_done < n_kills:
        name = list(KINDS)[(n_done // KILLS_OF_A_STUDY) % len(KINDS)]
        count, since = min(KILLS_OF_A_STUDY, n_kills - n_done), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            chosen = {**KINDS[name], "max_iter": ITERATIONS * (count + 1)}
            with Study(Path(folder), chosen.pop("links"), **chosen) as study:
                try:
                    disturb(study, count, draw)
                    n_right += count
                    told = "the simulation's numbers"
                except AssertionError as error:
                    told = f"FAILED: {error}"
        n_done += count
        print(f"{name}: {count} kills in {time.monotonic() - since:.0f} s, {told}", flush=True)
    print(f"{n_right} of {n_done} kills left the same numbers; {time.monotonic() - begin:.0f} s")
    return n_right == n_done


if __name__ == "__main__":
    sys.exit(0 if main(*map(int, sys.argv[1:])) else 1)
