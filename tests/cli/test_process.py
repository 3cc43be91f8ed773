"""What the program does to its process: its output is complete and without zenoh's log, and memory is kept."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from network.certificates import Authority
from network.harness import free_ports
from vpem.cli.process import own_process
from vpem.transports.wiring import Peer, Wiring, open_wire

TESTS = Path(__file__).parents[1]
SCRIPT = """
import logging, os, sys, time
from pathlib import Path
from rich.console import Console
from network.harness import free_ports
from vpem.cli.process import own_process
from vpem.transports.datagrams import Datagram
from vpem.transports.wiring import Peer, Tls, Wiring, open_wire

folder = sys.argv[1]
console, ports = Console(), free_ports(2)
logging.basicConfig(stream=sys.stdout, format="%(message)s")


def wire(number):
    names = {"certificate": f"party-{number}.crt", "key": f"party-{number}.key", "ca": "authority.crt"}
    tls = Tls(**{name: Path(folder) / path for name, path in names.items()})
    address, other = f"127.0.0.1:{ports[1 - number]}", f"party-{1 - number}"
    peer = Peer(number=1 - number, name=other, address=address, certificate=other, connect=number == 0)
    listen = f"127.0.0.1:{ports[number]}"
    return open_wire(Wiring(study="s", number=number, listen=listen, peers=(peer,), tls=tls, lease=2.0))


place = os.fstat(1).st_ino
print("1", end="")
print(" begin")
for turn in range(2):
    with own_process(), wire(0) as one, wire(1) as other:
        print("2 print")
        console.print("3 rich")
        end, arrived = time.monotonic() + 20, []
        other.listen(lambda *found: arrived.append(found), lambda: None)
        while not arrived and time.monotonic() < end:
            one.send(1, Datagram(b"x", b"x"))
            time.sleep(0.1)
        assert time.monotonic() < end
        for text in one.problems() + other.problems():
            print("problem", text)
        sys.stdout.write("4 half")
    assert os.fstat(1).st_ino == place, "given back"
    print(" a line")
    logging.warning("5 log")
    sys.stdout.flush()
    os.write(1, b"6 written\\n")
console.print("7 end")
owned = own_process()
owned.__enter__()
left_open = wire(0)
print("8 a wire")
raise ValueError("told")
"""
MEMORY = """
import resource, sys
from vpem.cli.process import keep_memory
assert not int(sys.argv[1]) or keep_memory()
for number in range(210):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [bytearray(300_000) for _ in range(5)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
EXPECTED = "1 begin\n" + 2 * "2 print\n3 rich\n4 half a line\n5 log\n6 written\n" + "7 end\n8 a wire\n"


def test_what_a_process_prints_is_in_order_and_an_error_ends_it_as_any_other(tmp_path):
    authority = Authority(tmp_path)
    for number in range(2):
        authority.sign(f"party-{number}")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    path = tmp_path / "out.txt"
    with path.open("wb") as out:
        command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, env=environment, timeout=60)
    assert path.read_text() == EXPECTED
    assert done.stderr.endswith("ValueError: told\n"), "not aborted"
    assert done.returncode == 1


def lonely():
    """Wiring of an agent whose neighbour never comes."""
    [port] = free_ports(1)
    peer = Peer(number=1, name="x", address="127.0.0.1:1", connect=True)
    return Wiring(study="s", number=0, listen=f"127.0.0.1:{port}", peers=(peer,), tls=None, lease=2.0)


def test_lines_of_others_pass_while_descriptor_1_is_a_pipe(capfd):
    os.write(1, b"before\n")
    with own_process(), open_wire(lonely()):
        os.write(1, b"of another library\n")
        subprocess.run([sys.executable, "-c", "print('of a child')"], check=True)
    os.write(1, b"after\n")
    out, err = capfd.readouterr()
    assert out.splitlines() == ["before", "of another library", "of a child", "after"]
    assert err == ""


def test_a_wire_alone_leaves_descriptor_1_as_it_is():
    place = os.fstat(1).st_ino
    with open_wire(lonely()):
        assert os.fstat(1).st_ino == place


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_pieces_of_messages_get_the_same_memory_again():
    faults = [
        int(subprocess.run([sys.executable, "-c", MEMORY, keeps], capture_output=True, check=True).stdout)
        for keeps in ("0", "1")
    ]
    assert faults[1] < 0.05 * faults[0], faults
