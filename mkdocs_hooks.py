"""Hooks of the documentation: the experiments' figures lie outside docs/, and the site has them all the same."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent
FIGURES = "experiments/results"


def on_files(files: Files, config: Any) -> Files:
    """Add the figures to the files of the site."""
    for path in sorted((ROOT / FIGURES).glob("*/*.svg")):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to the figures find them there."""
    return re.sub(rf"\]\(\.\./({FIGURES}/[\w./-]+\.svg)\)", r"](\1)", markdown)
