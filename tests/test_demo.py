"""The demo's figures, as an independent run of the same methods found them."""

import re

from vpem.demo import run


def test_the_demo_prints_its_table_and_draws_its_picture(tmp_path, capsys):
    picture = tmp_path / "new" / "demo.png"
    run(str(picture))
    table = capsys.readouterr().out
    accuracies = {name.strip(): float(value) for name, value in re.findall(r"^(.{22}).*?([\d.]+)%", table, re.M)}
    assert accuracies == {
        "k-means (centralized)": 85.4,
        "EM (centralized)": 95.3,  # 95.1 at scikit-learn's default tol
        "VP-EM, federated": 94.4,
        "VP-EM, on a ring": 94.4,
    }
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in picture.parent.iterdir()] == ["demo.png"], "nothing half-written stays behind"
