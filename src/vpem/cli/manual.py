"""Show the documentation in the terminal; it is part of the package and can be read offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import vpem
from vpem.cli.app import app, out, plainly, say
from vpem.reading.problems import check_known

PAGES = ("index", "tutorial", "tutorial-network", "privacy", "real-data", "algorithm", "experiments", "speed")
"""Pages at the top of the list."""


def complete_page(incomplete: str) -> list[str]:
    """Return the pages that complete a prefix, for shell completion."""
    return [name for name in _pages() if name.startswith(incomplete)]


@app.command()
@plainly
def docs(
    page: Annotated[
        str | None,
        typer.Argument(help="A page, such as privacy or howto/deploy.", autocompletion=complete_page),
    ] = None,
) -> None:
    """Show a page of the documentation, or list all pages.

    Example: `vpem docs privacy`
    """
    pages = _pages()
    if page is None:
        for name, path in pages.items():
            say(f"{name:<34} {path.read_text(encoding='utf-8').partition(chr(10))[0].lstrip('# ')}")
        return
    check_known(page, list(pages), "page")
    from rich.markdown import Markdown

    text = Markdown(pages[page].read_text(encoding="utf-8"))
    if not out.is_terminal:
        out.print(text)
        return
    with out.pager(styles=True):
        out.print(text)


def _pages() -> dict[str, Path]:
    """Return the file of each page by name, from the installed package or from a checkout."""
    package = Path(vpem.__file__).parent
    folder = next(folder for folder in (package / "docs", package.parents[1] / "docs") if folder.is_dir())
    found = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.md"))}
    return {name: found[name] for name in sorted(found, key=lambda name: (name not in PAGES, "/" in name, name))}
