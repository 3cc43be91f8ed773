"""A SuperLink, SuperNodes and the program flwr as processes of their own, for tests; all end with the context."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from vpem.studies.certificates import make_authority, make_request, sign

PROGRAMS = Path(sys.executable).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}
NAME = "here"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as holder:
        return holder.getsockname()[1]


def wait_for(what, seconds, message):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, message()
        time.sleep(0.05)
    return found


class Wire:
    """Passes bytes on to a port, and keeps them."""

    def __init__(self, target):
        self.target, self.kept = target, bytearray()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    near.close()
                    continue
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one, other):
        with contextlib.suppress(OSError):
            while content := one.recv(65536):
                self.kept += content
                other.sendall(content)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Federation:
    """Processes of one federation, in a folder; SuperNodes talk to the SuperLink over a wire that keeps what it sees.

    With TLS and authentication of nodes, unless it is for a simulation or insecure.
    """

    def __init__(self, folder, *, simulation=False, insecure=False):
        self.folder, self.simulation, self.insecure = folder, simulation, insecure or simulation
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self.running, self.nodes = free_port(), [], {}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLWR_")},
            **QUIET,
            "FLWR_HOME": str(folder / "home"),
            "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
            "COLUMNS": "500",
        }
        self.wire = Wire(self.port)

    def __enter__(self):
        try:
            (self.folder / "home").mkdir(exist_ok=True)
            about = f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\naddress = "127.0.0.1:{self.port}"\n'
            if self.insecure:
                about += "insecure = true\n"
            else:
                self.make_certificates()
                about += f'root-certificates = "{self.folder / "ca.pem"}"\n'
            (self.folder / "home" / "config.toml").write_text(about)
            self.start_superlink()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.running):
            self.end(process)
        self.wire.listener.close()
        shutil.rmtree(self.folder / "home" / "apps", ignore_errors=True)

    def make_certificates(self):
        make_authority(self.folder, "federation")
        _, request = make_request(self.folder, "superlink", ["127.0.0.1", "localhost"])
        sign(request, self.folder, self.folder / "superlink.pem")

    def start(self, name, *arguments):
        """A process in a group of its own, whose output goes to a file."""
        log = (self.folder / f"{name}.log").open("ab")
        command = [str(PROGRAMS / arguments[0]), *map(str, arguments[1:])]
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=self.environment, cwd=self.folder, start_new_session=True
        )
        log.close()
        self.running.append(process)
        return process

    @staticmethod
    def end(process, how=signal.SIGTERM):
        """End a process that was started here, and those that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
        with contextlib.suppress(ProcessLookupError):  # what it has left
            os.killpg(process.pid, signal.SIGKILL)

    def start_superlink(self):
        options = ["--host", "127.0.0.1", "--port", self.port, "--disable-runtime-dependency-installation"]
        if self.simulation:
            options += ["--simulation"]
        else:
            options += ["--database", self.folder / "state.db"]
        if self.insecure:
            options += ["--insecure"]
        else:
            files = {"ca-certfile": "ca.pem", "certfile": "superlink.pem", "keyfile": "superlink.key"}
            options += [part for name, file in files.items() for part in (f"--ssl-{name}", self.folder / file)]
            options += ["--enable-supernode-auth"]
        self.superlink = self.start("superlink", "flower-superlink", *options)

        def is_up():
            assert self.superlink.poll() is None, self.log("superlink")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True

        wait_for(is_up, 60, lambda: self.log("superlink"))

    def start_node(self, name, config):
        """A SuperNode, registered with a key of its own if there is authentication."""
        options = ["--superlink", f"127.0.0.1:{self.wire.port}", "--port", free_port()]
        if self.insecure:
            options += ["--insecure"]
        else:
            key = self.folder / f"{name}-node"
            if not key.exists():
                made = ec.generate_private_key(ec.SECP384R1())
                own = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
                key.write_bytes(made.private_bytes(serialization.Encoding.PEM, *own))
                form = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
                key.with_suffix(".pub").write_bytes(made.public_key().public_bytes(*form))
                self.flwr("supernode", "register", key.with_suffix(".pub"), NAME)
            options += ["--root-certificates", self.folder / "ca.pem", "--auth-supernode-private-key", key]
        said = " ".join(f'{one}="{value}"' for one, value in config.items())
        self.nodes[name] = self.start(name, "flower-supernode", *options, "--node-config", said)

    def flwr(self, *arguments, seconds=60):
        """The program's output."""
        command = [str(PROGRAMS / "flwr"), *map(str, arguments)]
        found = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=seconds
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    def run(self, app, *options, seconds):
        """Run an app to its end; returns the output of its server."""
        return self.flwr("run", app, NAME, "--stream", *options, seconds=seconds)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")
