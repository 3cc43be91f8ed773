"""Write the folder of a Flower app from the shared file of a study."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vpem.studies.fields import StudyFileError
from vpem.studies.shared import Study
from vpem.studies.shared_file import read_study
from vpem.studies.study_text import study_text, write_new

APP = "vpem_app"
"""Name of the app's module in its folder."""


def quick(study: Study, said: Mapping[str, Any]) -> Study:
    """Return the study with defaults that need few questions: one start with a cheap `init`, and squarem.

    Options that the file sets are kept.

    Parameters
    ----------
    study : Study
    said : mapping
        Table `[model]` of the file.
    """
    fewer: dict[str, Any] = {"starts": 1, "init": "random" if study.is_masked else "labels", "accelerate": "squarem"}
    fewer = {name: value for name, value in fewer.items() if name not in said}
    return replace(study, model=replace(study.model, **fewer))


def write_app(path: str | os.PathLike[str], folder: Path) -> Study:
    """Write an app for a study; return the study as it will be run.

    Raises
    ------
    StudyFileError
        If the study is not a star.
    FileExistsError
        If the folder already contains an app.
    """
    source = Path(path).resolve()
    study = read_study(source)
    if study.server is None:
        raise StudyFileError(
            f'{path}: expected links = "star" in [network], with a [network.server], got {study.shape!r}; parties on '
            "Flower talk to the SuperLink only"
        )
    said = tomllib.loads(source.read_text(encoding="utf-8-sig")).get("model", {})
    study = quick(study, said)
    text = study_text(study)
    write_new(folder / "pyproject.toml", project_text(study, text, source.parent))
    write_new(folder / "study.toml", text)
    write_new(folder / APP / "__init__.py", MODULE)
    write_new(folder / "README.md", readme_text(study))
    return read_study(folder / "study.toml")


MODULE = '''"""The parts of a study on Flower; pyproject.toml names them."""

from vpem.flower.apps import client, server

__all__ = ["client", "server"]
'''


def project_text(study: Study, text: str, home: Path) -> str:
    """Return the text of the app's pyproject.toml."""
    name = study.name.lower().replace("_", "-").strip("-") or "study"
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = {json.dumps(name)}
version = "1.0.0"
description = "A study of vpem: parties with different columns of the same rows fit one mixture."
license = "BSD-3-Clause"
dependencies = []  # vpem[flower] is installed on every machine beforehand: a run brings no code but two lines

[tool.hatch.build.targets.wheel]
packages = [{json.dumps(APP)}]

[tool.flwr.app]
publisher = "vpem"

[tool.flwr.app.components]
serverapp = "{APP}:server"
clientapp = "{APP}:client"

[tool.flwr.app.config]
server = ""  # path of the server's own file, on the machine of the SuperLink
folder = {json.dumps(str(home))}  # for simulations: where the parties' own files are
study = '''
{text}'''
"""


def readme_text(study: Study) -> str:
    """Return the text of the app's README, with the commands that run it."""
    party = study.parties[0].name
    return f"""# Study {study.name} on Flower

Every party has the same copy of `study.toml`, and a file of its own with its table, keys and folder.

On one machine, as a simulation, with the parties' own files in the folder of the study or one level below:

```sh
flwr run . local --stream --federation-config 'num-supernodes={len(study.parties)}'
```

On a federation, each party starts its node so, beside the options for TLS and authentication:

```sh
flower-supernode --superlink HOST:PORT ... --node-config 'party="/path/to/{party}.toml" study="/path/to/study.toml"'
```

Then, with the server's own file on the machine of the SuperLink:

```sh
flwr run . NAME --stream --run-config 'server="/path/to/server.toml"'
```

A run that was interrupted goes on with the same command. `vpem docs howto/flower` shows all steps.
"""
