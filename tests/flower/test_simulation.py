"""`flwr run` in Flower's simulation: the same model as the library's own simulation."""

import numpy as np
import pytest

from clinics import NAMES
from joining.test_flower import PLAIN, RESOLUTION, Clinics, MaskedClinics, check_models
from vpem.studies.flower_files import write_app
from vpem.studies.flower_server import most_questions

pytest.importorskip("flwr", reason="no flwr: pip install 'vpem[flower]' to test studies on Flower")
pytest.importorskip("ray", reason="no ray: pip install 'vpem[flower]' to test studies in Flower's simulation")

from flower.federation import Federation

SECONDS = 240


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    with Federation(tmp_path_factory.mktemp("federation"), simulation=True) as found:
        yield found


def run(federation, clinics):
    """Run a study's app, with the study as the app has it."""
    app = clinics.folder / "app"
    study = write_app(clinics.folder / "study.toml", app)
    (clinics.folder / "study.toml").write_text((app / "study.toml").read_text())
    said = federation.run(app, "--federation-config", f"num-supernodes={len(NAMES)}", seconds=SECONDS)
    assert "all parties are done" in said, said
    assert "a question to all parties takes" in said
    n_questions = int(said.rsplit("the run has taken ", 1)[1].split()[0])
    assert n_questions <= most_questions(study, len(clinics.X))
    return said


def test_a_plain_study(federation, tmp_path):
    clinics = Clinics(tmp_path, links="star", model=PLAIN, starts=1)
    run(federation, clinics)
    assert check_models(clinics, 1e-9).converged_


def test_a_masked_study(federation, tmp_path):
    clinics = MaskedClinics(tmp_path, model='init = "random"\ntol = 0\nmax_iter = 3')
    run(federation, clinics)
    check_models(clinics, RESOLUTION)
    labels = np.loadtxt(tmp_path / "north" / "results" / "rows.csv", delimiter=",", skiprows=1, usecols=1)
    assert len(labels) == len(clinics.X)
