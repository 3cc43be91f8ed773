"""`flwr run` in Flower's simulation: the same model as the library's own simulation."""

import pytest

from clinics import NAMES, RESOLUTION, Clinics, MaskedClinics, check_models
from vpem.flower.app_folder import write_app
from vpem.flower.server import most_questions

pytest.importorskip("flwr", reason="no flwr: pip install 'vpem[flower]' to test studies on Flower")
pytest.importorskip("ray", reason="no ray: pip install 'vpem[flower]' to test studies in Flower's simulation")

from flower.federation import Federation

SECONDS = 300


def run(federation, clinics):
    """Run a study's app, with the study as the app has it."""
    app = clinics.folder / "app"
    study = write_app(clinics.folder / "study.toml", app)
    (clinics.folder / "study.toml").write_text((app / "study.toml").read_text())
    said = federation.run(app, "--federation-config", f"num-supernodes={len(NAMES)}", seconds=SECONDS)
    assert "all parties are done" in said, said
    assert "a question to all parties takes" in said
    assert int(said.rsplit("the run has taken ", 1)[1].split()[0]) <= most_questions(study, len(clinics.X))


@pytest.mark.long
def test_models_are_those_of_the_simulation(tmp_path):
    """One federation for both, as it takes seconds to start."""
    with Federation(tmp_path / "federation", simulation=True) as federation:
        plain = Clinics(tmp_path / "plain", links="star", model='init = "labels"\ntol = 1e-6', starts=1)
        run(federation, plain)
        assert check_models(plain, 1e-9).converged_
        masked = MaskedClinics(tmp_path / "masked", model='init = "random"\ntol = 0\nmax_iter = 3')
        run(federation, masked)
        check_models(masked, RESOLUTION)
