"""HTML page that contains its style, scripts and data, and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from vpem.files import replacing

STYLE = "page.css"


def fill_sheet(page: str, scripts: Sequence[str], title: str, data: Mapping[str, Any]) -> str:
    """Return the HTML of a page.

    Parameters
    ----------
    page : str
        Name of the HTML asset.
    scripts : sequence of str
        Names of the assets that are concatenated into one script, in this order.
    title : str
    data : mapping
        Plain values for the script.
    """
    assets = resources.files("vpem.report") / "assets"
    elements, style, *parts = ((assets / name).read_text(encoding="utf-8") for name in (page, STYLE, *scripts))
    script = "\n".join(parts)
    contents = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return Template(elements).substitute(
        title=html.escape(str(title)).encode("ascii", "xmlcharrefreplace").decode(),
        # Without "<", no name in the data can close the element that holds it.
        data=contents.replace("<", "\\u003c"),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
    )


def write_sheet(page: str, path: str | os.PathLike[str]) -> None:
    """Write a page to a file, which is replaced atomically; its folder is created."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        unfinished.write_bytes(page.encode())


def _hash(text: str) -> str:
    """Return the hash that allows an element in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
