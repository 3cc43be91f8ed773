"""A TCP proxy between two parties that delays, stalls, and resets connections."""

import random
import socket
import struct
import threading
import time


class Proxy:
    """Passes on from a port of its own to another one, in threads; a context."""

    def __init__(self, target, *, delay=0.0, seed=0):
        self.target, self.delay, self.random = target, delay, random.Random(seed)
        self.stalled_until = 0.0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.pairs, self.lock = [], threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        self.reset()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            with self.lock:
                self.pairs.append((near, far))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one, other):
        try:
            while content := one.recv(65536):
                if self.delay:
                    time.sleep(self.delay)
                while (left := self.stalled_until - time.monotonic()) > 0:
                    time.sleep(left)
                other.sendall(content)
        except OSError:
            pass
        for end in (one, other):
            end.close()

    def stall(self, seconds):
        self.stalled_until = time.monotonic() + seconds

    def reset(self):
        """Reset all connections."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                try:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()
