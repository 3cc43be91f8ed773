"""A SuperLink and three SuperNodes as processes: TLS and authentication, what the SuperLink sees, faults."""

import json
import signal
import threading

import pytest

from clinics import NAMES, RESOLUTION, Clinics, MaskedClinics, check_models, found_in
from vpem.flower.app_folder import write_app
from vpem.studies.study_text import server_text

pytest.importorskip("flwr", reason="no flwr: pip install 'vpem[flower]' to test studies on Flower")

from flower.federation import Federation, wait_for

pytestmark = pytest.mark.flower

SECONDS = 400
"""For a whole run; on a machine with far too much to do, a question took 30 s."""
MODEL = 'init = "random"\ntol = 0\nmax_iter = 3\n'


class Deployed:
    """A study whose parties are SuperNodes of a federation."""

    def __init__(self, federation, clinics):
        self.federation, self.clinics, self.app = federation, clinics, clinics.folder / "app"
        write_app(clinics.folder / "study.toml", self.app)
        (clinics.folder / "study.toml").write_text((self.app / "study.toml").read_text())
        (clinics.folder / "server.toml").write_text(server_text("server-results"))
        for name in NAMES:
            self.start(name)

    def start(self, name):
        folder = self.clinics.folder
        own = {"party": folder / name / "clinic.toml", "study": folder / "study.toml"}
        self.federation.start_node(name, own)

    def run(self):
        server = f'server="{self.clinics.folder / "server.toml"}"'
        return self.federation.run(self.app, "--run-config", server, seconds=SECONDS)

    def begin(self):
        """Run in a thread; what it says comes into a list."""
        said = []

        def run():
            try:
                said.append(self.run())
            except AssertionError as error:  # as the program says it
                said.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        return thread, said

    @property
    def n_answered(self):
        """Questions that all parties have answered, in all runs."""
        path = self.clinics.folder / "server-results" / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(json.loads(line)["event"] == "progress" for line in lines)

    def wait_for_answers(self, count):
        wait_for(lambda: self.n_answered >= count, SECONDS, lambda: self.federation.log("superlink")[-2000:])


def test_a_masked_study_with_tls_and_authenticated_nodes(tmp_path):
    clinics = MaskedClinics(tmp_path / "study", model=MODEL)
    text = (clinics.folder / "study.toml").read_text()
    with Federation(tmp_path / "federation") as federation:
        study = Deployed(federation, clinics)
        said = study.run()
        assert "all parties are done" in said, said
        check_models(clinics, RESOLUTION)
        # The meeting, who has which rows, three iterations and the one that ends them, a jump, the last total.
        # A node that is asked before it has put away its state is asked again.
        assert 8 <= int(said.rsplit("the run has taken ", 1)[1].split()[0]) <= 12
        kept = b"".join(path.read_bytes() for path in federation.folder.glob("state.db*"))
        seen = kept + b"".join((federation.folder / f"{one}.log").read_bytes() for one in ("superlink", *NAMES))
        assert text.splitlines()[1].encode() in seen, "what the SuperLink gets can be found in its files"
        assert found_in(seen, clinics.X) == []
        assert b"north_0" not in seen
        assert b"patient" not in seen
        wire = bytes(federation.wire.kept)
        assert len(wire) > 10_000
        assert b"vpem" not in wire, "it is encrypted"


@pytest.mark.long
def test_a_node_that_dies_and_a_superlink_that_is_restarted(tmp_path):
    clinics = Clinics(tmp_path / "study", links="star", model=MODEL.replace("3", "5"), starts=1, patience="10min")
    with Federation(tmp_path / "federation", insecure=True) as federation:
        study = Deployed(federation, clinics)
        thread, said = study.begin()
        study.wait_for_answers(3)
        federation.end(federation.nodes["east"], signal.SIGKILL)
        thread.join()
        assert "east: its node has not answered" in said[0], said[0]
        assert "the next flwr run goes on from it" in said[0]
        study.start("east")
        answered = study.n_answered
        thread, said = study.begin()
        study.wait_for_answers(answered + 3)
        federation.end(federation.superlink, signal.SIGKILL)
        thread.join()
        assert "Connection to the SuperLink is unavailable" in said[0]
        federation.start_superlink()
        last = study.run()
        assert "going on from the last checkpoint" in last
        assert "all parties are done" in last, last
        check_models(clinics, 1e-9)
        wire = bytes(federation.wire.kept)
        assert b"vpem" in wire, "what was sent can be found"
        assert found_in(wire, clinics.X) == []
