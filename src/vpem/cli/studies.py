"""Commands that prepare studies: write their files and keys, and run them on one machine."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from vpem.cli.app import INTERRUPTED, app, completing, err, out, plain, plainly, say
from vpem.cli.gathering import said_families
from vpem.cli.join_command import OwnFamily

if TYPE_CHECKING:
    from vpem.studies.private import PartyFile
    from vpem.studies.shared import Member, Study

Found = TypeVar("Found")

studies = typer.Typer(
    no_args_is_help=True,
    help="Files of a study on a real network: write, check, try out. Example: `vpem study init clinics --example`",
)
keys = typer.Typer(
    no_args_is_help=True, help="Keys and certificates of the parties. Example: `vpem keys request north`"
)
app.add_typer(studies, name="study")
app.add_typer(keys, name="keys")

Folder = Annotated[Path, typer.Option("--folder", help="Folder of the keys.")]
KEYS = Path("keys")
OWN_WORDS = 1.0
"""Seconds that the other processes have to end by themselves after one has failed."""
STOPPING = 10.0
"""Seconds between attempts to terminate a process."""


def _ask(given: object, question: str, check: Callable[[str], Found], default: str | None = None) -> Found:
    """Return a validated option, or prompt for it in a terminal until the answer is valid."""
    if given is None and not sys.stdin.isatty():
        if default is None:
            raise ValueError(f"expected an option for: {question}; got none, and there is no terminal to ask")
        given = default
    if given is not None:
        try:
            return check(str(given))
        except ValueError as error:
            raise ValueError(f"{question}: {error}, got {str(given)!r}") from None

    def heard(text: str) -> Found:
        try:
            return check(text.strip())
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    found: Found = typer.prompt(question, default=default, value_proc=heard)
    return found


def _members(text: str) -> tuple[Member, ...]:
    """Parse parties such as north=north.org:7450,south=south.org:7450."""
    from vpem.studies import fields
    from vpem.studies.shared import Member

    pairs = [[part.strip() for part in one.partition("=")] for one in text.split(",")]
    found = tuple(Member(fields.name(who), fields.address(where), who) for who, _, where in pairs)
    if len({one.name for one in found}) < len(found) or len(found) < 2:
        raise ValueError("expected two parties or more, with different names")
    return found


def _count(text: str) -> int:
    from vpem.studies import fields

    return fields.whole(1)(int(text) if text.isdecimal() else text)


@studies.command()
@plainly
def init(
    folder: Annotated[Path, typer.Argument(help="Folder for the files.")] = Path(),
    name: Annotated[str | None, typer.Option(help="Name of the study.")] = None,
    parties: Annotated[str | None, typer.Option(help="Such as north=north.org:7450,south=south.org:7450")] = None,
    components: Annotated[int | None, typer.Option("--components", "-k", help="Number of components.")] = None,
    links: Annotated[
        str | None,
        typer.Option(
            help="star, tree, ring, path or complete.",
            autocompletion=completing("star", "tree", "ring", "path", "complete"),
        ),
    ] = None,
    server: Annotated[str | None, typer.Option(help="Address of a star's server.")] = None,
    example: Annotated[bool, typer.Option("--example", help="An example: three clinics with tables.")] = False,
) -> None:
    """Write the shared file of a study and a file for each party, with comments; ask for missing options.

    - `vpem study init clinics --example`
    - `vpem study init --name clinics -k 3 --links tree --parties north=north.org:7450,south=south.org:7450`
    """
    from vpem.studies import fields
    from vpem.studies.linking import LINKS, drawn_links
    from vpem.studies.shared import Member, Options, Study
    from vpem.studies.shared_file import read_study
    from vpem.studies.study_text import new_salt, party_text, server_text, study_text, write_new

    if example:
        from vpem.studies.example import write_example

        if links not in (None, "star", "tree"):
            raise ValueError(f"expected links tree or star for the example, got {links}")
        path = write_example(folder, star=links == "star")
        say(f"an example of three clinics: {path}\ntry it: vpem study up {path}")
        return
    name = _ask(name, "name of the study", fields.name)
    members = _ask(parties, "parties and their addresses, as north=north.org:7450,south=south.org:7450", _members)
    shape = _ask(links, f"links ({', '.join(LINKS)})", fields.one_of(LINKS), "tree")
    hub = None
    if shape == "star":
        hub = Member("server", _ask(server, "address of the server, as host:port", fields.address), "server")
    count = _ask(components, "number of components", _count)
    ends = [(number, len(members)) for number in range(len(members))] if hub else drawn_links(shape, len(members))
    about = {"name": name, "parties": members, "server": hub, "shape": shape, "salt": new_salt()}
    way = "masked" if len(members) > 2 else "differences"  # a sum of two shows each the other's term
    study = Study(**about, links=tuple(ends), sum=way, model=Options(components=count))  # type: ignore[arg-type]
    write_new(folder / "study.toml", study_text(study))
    for one in members:
        write_new(
            folder / f"{one.name}.toml", party_text(one.name, f"{one.name}.csv", ["id"], folder=f"{one.name}-results")
        )
    if hub:
        write_new(folder / "server.toml", server_text("server-results"))
    read_study(folder / "study.toml")
    say(f"for all parties: {folder / 'study.toml'}; look through it, then send the same copy to each")
    say("for each party, to be completed there: " + ", ".join(f"{one.name}.toml" for one in members))
    say("next: vpem keys (who signs: vpem keys ca; each party: vpem keys request NAME --host HOST)")


@studies.command()
@plainly
def check(
    study: Annotated[Path, typer.Argument(help="The shared file.")],
    party: Annotated[
        Path | None, typer.Option("--party", help="A party's own file, whose table is read as well.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Do not check keys.")] = False,
    family: OwnFamily = [],  # noqa: B006 (typer's way to say: none)
) -> None:
    """Check a study's files, and a party's table and keys; nothing is sent.

    Example: `vpem study check study.toml --party clinic.toml`
    """
    from vpem.studies.seats import take_seat
    from vpem.studies.shared_file import read_study

    found = read_study(study)
    size = f"{len(found.parties)} parties, {len(found.links)} links"
    say(f"{study}: study {found.name!r}, {size}, digest {found.digest[:16]}")
    say("parties: " + ", ".join(f"{one.name} ({one.address})" for one in found.members))
    if party is None:
        return
    seat = take_seat(found, party, insecure=insecure, families=said_families(family))
    for note in seat.notes:
        err.print(f"[yellow]note:[/yellow] {plain(note)}", highlight=False)
    if seat.local is not None:
        rows = seat.local.rows
        say(f"{party}: {len(rows):,} rows, {len(rows.names)} columns ({', '.join(rows.names[:8])})")
        say(f"digest of the rows, the same at all parties: {rows.digest[:16]}")


@studies.command()
@plainly
def up(
    study: Annotated[
        Path, typer.Argument(help="The shared file; the parties' own files are in its folder, or one level below.")
    ],
    insecure: Annotated[bool, typer.Option("--insecure", help="Plain TCP without certificates.")] = False,
) -> None:
    """Run all parties of a study on this machine, each in its own process and folder.

    Example: `vpem study init clinics --example`, then `vpem study up clinics/study.toml`
    """
    from vpem.studies.local_trial import find_files, local_copy, make_keys
    from vpem.studies.shared_file import read_study

    found = read_study(study)
    files = find_files(found, study.resolve().parent)
    copy = local_copy(found, study.resolve().parent)
    if not insecure and (made := make_keys(found, files)):
        say(f"keys made for {', '.join(made)}, by an authority of this try alone")
    codes, lines = _run_all(found, copy, files, insecure=insecure)
    for name, code in codes.items():
        if code == 0 and name != "server":
            say(f"{name}: results in {files[name].folder}")
    failed = [name for name, code in codes.items() if code]
    if failed:
        name, code = failed[0], codes[failed[0]]
        if code != INTERRUPTED:
            rest = ", ".join(sorted(failed[1:], key=found.number))
            others = f"; without it, {rest} ended too" if rest else ""
            said = lines[name] or (
                f"signal {-code}, without a word" if code < 0 else f"exit code {code}, without a word"
            )
            err.print(plain(f"{name} ended with: {said}{others}"), highlight=False, soft_wrap=True)
        raise typer.Exit(code if code > 0 else 128 - code)


def _run_all(
    study: Study, copy: Path, files: dict[str, PartyFile], *, insecure: bool
) -> tuple[dict[str, int], dict[str, str]]:
    """Run one process for each agent and print its lines after its name; return exit codes and last lines by name."""
    width, running, last = max(map(len, study.names)), {}, dict.fromkeys(study.names, "")
    for name in study.names:
        own = files[name]
        command = [sys.executable, "-c", "from vpem.cli import main; main()", "join", str(copy)]
        command += [] if own.path is None else ["--party", str(own.path)]
        command += [*(["--server"] if name == "server" else []), *(["--insecure"] if insecure else [])]
        running[name] = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "COLUMNS": "500"}
        )

    def show(name: str) -> None:
        stream = running[name].stdout
        assert stream is not None, "piped"
        for line in stream:
            last[name] = line.strip() or last[name]
            out.print(f"[bold]{name:>{width}}[/bold] | {plain(line.rstrip())}", highlight=False, soft_wrap=True)

    threads = [threading.Thread(target=show, args=(name,)) for name in running]
    for thread in threads:
        thread.start()
    codes: dict[str, int] = {}
    while len(codes) < len(running):
        try:
            _wait(running, codes)
        except KeyboardInterrupt:  # the children received SIGINT as well
            continue
    for thread in threads:
        thread.join()
    return codes, last


def _wait(running: Mapping[str, subprocess.Popen[str]], codes: dict[str, int]) -> None:
    """Record exit codes in the order in which processes end; after a failure, terminate the others.

    They cannot continue without the failed process, and would wait for it for the study's `patience`.
    """
    end = math.inf
    while len(codes) < len(running):
        for name, process in running.items():
            if name not in codes and (code := process.poll()) is not None:
                codes[name] = code
        left = [process for name, process in running.items() if name not in codes]
        if end == math.inf and any(codes.values()):
            end = time.monotonic() + OWN_WORDS
        if time.monotonic() > end:
            for process in left:
                process.terminate()
            end = time.monotonic() + STOPPING
        time.sleep(0.05)


@keys.command()
@plainly
def ca(folder: Folder = KEYS, name: Annotated[str, typer.Option(help="Authority's name.")] = "vpem study") -> None:
    """Make the authority that signs the parties' requests; one party, or the server, keeps it."""
    from vpem.studies.certificates import make_authority

    key, certificate = make_authority(folder, name)
    say(f"send to every party: {certificate}")
    say(f"never send: {key}; with it, certificates for any party can be made")


@keys.command()
@plainly
def request(
    name: Annotated[str, typer.Argument(help="The party's certificate name, as in the study.")],
    folder: Folder = KEYS,
    host: Annotated[list[str], typer.Option(help="Name of this machine for others, such as north.example.org.")] = [],  # noqa: B006
) -> None:
    """Make this party's key and a request for a certificate."""
    from vpem.studies.certificates import look, make_request

    key, path = make_request(folder, name, host)
    say(f"send to the certificate authority: {path}")
    say(f"compare over another channel, such as the telephone: {look(path).fingerprint}")
    say(f"never send: {key}")


@keys.command()
@plainly
def sign(
    path: Annotated[Path, typer.Argument(metavar="REQUEST", help="NAME.csr, from a party.")],
    folder: Folder = KEYS,
    host: Annotated[list[str], typer.Option(help="Additional names of the party's machine.")] = [],  # noqa: B006
    output: Annotated[Path | None, typer.Option("--out", "-o", help="The certificate.")] = None,
) -> None:
    """Sign a party's request with the authority; compare the fingerprint first."""
    from vpem.studies.certificates import look, sign

    asked = look(path)
    say(f"{path} asks for {asked.name!r}, {', '.join(asked.hosts) or 'no hosts'}; fingerprint {asked.fingerprint}")
    made = sign(path, folder, output, hosts=host)
    say(f"send to {asked.name}, if its fingerprint is the same: {made} and {folder / 'ca.pem'}")


@keys.command()
@plainly
def show(paths: Annotated[list[Path], typer.Argument(help="Certificates or requests.")]) -> None:
    """Print names and dates of expiry of certificates and requests."""
    from vpem.studies.certificates import look

    for path in paths:
        one = look(path)
        until = "" if one.ends is None else f", valid {one.begins:%Y-%m-%d} to {one.ends:%Y-%m-%d}, by {one.issuer!r}"
        what = "authority" if one.is_authority else one.kind
        say(f"{path}: {what} of {one.name!r}{until}; hosts: {', '.join(one.hosts) or 'none'}; {one.fingerprint}")
