"""A small study that ships with the package: three clinics, each with different measurements of the same tumours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from vpem.core.network.parties import SERVER
from vpem.datasets import load_breast_cancer_parties
from vpem.reading import write
from vpem.studies.linking import drawn_links
from vpem.studies.shared import Member, Options, Study
from vpem.studies.study_text import new_salt, party_text, server_text, study_text, write_new

CLINICS = {"north": "mean", "east": "error", "south": "worst"}
"""Party of the data set that each clinic holds, by the clinic's name."""


def write_example(folder: Path, *, star: bool = False) -> Path:
    """Write a study of three clinics, each with its own folder, table and file; return the path of the shared file.

    Every clinic stores its rows in a different order. Sums are masked if the clinics form a star around a server.
    """
    data = load_breast_cancer_parties()
    parties = tuple(Member(name, f"127.0.0.1:{7450 + place}", name) for place, name in enumerate(CLINICS))
    n_parties = len(parties)
    options = Options(components=2, covariance="diag", starts=1, init="random" if star else "labels")
    study = Study(
        name="tumours",
        model=replace(options, accelerate="squarem") if star else options,
        parties=parties,
        server=Member(SERVER, f"127.0.0.1:{7450 + n_parties}", SERVER) if star else None,
        shape="star" if star else "tree",
        links=tuple((place, n_parties) for place in range(n_parties)) if star else drawn_links("tree", n_parties),
        salt=new_salt(),
        seed=1,
        sum="masked" if star else "differences",  # plain sums need no keys and allow init=labels
        patience=600.0,
    )
    write_new(folder / "study.toml", study_text(study))
    if star:
        write_new(folder / "server" / "server.toml", server_text())
    rng = np.random.default_rng(0)
    for name, kind in CLINICS.items():
        order, columns = rng.permutation(len(data.data)), data.partition[kind]
        write_new(folder / name / "clinic.toml", party_text(name, "table.csv", ["patient"]))
        table = {"patient": [f"p{1000 + row}" for row in order]}
        named = {data.feature_names[column].replace(" ", "_"): data.data[order, column] for column in columns}
        write(folder / name / "table.csv", {**table, **named})
    return folder / "study.toml"
