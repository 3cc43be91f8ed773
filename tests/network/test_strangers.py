"""What must not take part is refused and seen, and the run goes on."""

import socket
import threading
from contextlib import suppress
from functools import partial

import pytest

from network.certificates import Authority
from network.harness import RING
from network.harness import Study as AnyStudy

pytestmark = pytest.mark.network
Study = partial(AnyStudy, forked=True)


def busy(study):
    study.start()
    study.wait_for_checkpoint(0, 5)


def test_wrong_certificates_are_refused(tmp_path):
    path = [[0, 1], [1, 2]]
    with Study(tmp_path, path, n_parties=3, max_iter=30, secure=True) as study:
        own = study.content["tls"]
        other = Authority(tmp_path, "other")
        cases = {
            "foreign": ({**other.sign("party-0", "foreign"), "ca": own[0]["ca"]}, "UnknownIssuer"),
            "expired": (study.authority.sign("party-0", "expired", days=-3), "expired"),
            "stranger": (study.authority.sign("stranger"), "'stranger', which is not expected"),
            "another party's": (own[2], "'party-2', which is not expected"),
        }
        study.start(1, 2)
        study.wait_until(lambda: study.told(1, "Here"))
        for keys, words in cases.values():
            study.start(0, tls=[keys, own[1], own[2]])
            study.wait_until(lambda words=words: study.told(1, "Problem", words))
            study.kill(0)
        assert len(study.told(1, "Here")) == 1
        study.start(0)
        study.check()


def test_another_partys_certificate_is_refused(tmp_path):
    with Study(tmp_path, [[0, 2], [1, 2]], n_parties=3, max_iter=30, secure=True) as study:
        own = study.content["tls"]
        study.start(1, 2)
        study.wait_until(lambda: study.told(2, "Here"))
        study.start(0, tls=[own[1], own[1], own[2]])
        study.wait_until(lambda: study.told(2, "Problem", "'party-1', which is here"))
        study.kill(0)
        assert len(study.told(2, "Here")) == 1
        study.start(0)
        study.check()


def test_another_study_or_version_is_refused(tmp_path):
    with Study(tmp_path, RING, n_parties=4, max_iter=100) as study:
        busy(study)
        study.kill(2)
        study.start(2, fields={"model.components": "3"})
        assert study.codes(2) == [5]
        [outcome] = study.told(2, "Outcome")
        assert "model.components" in outcome["reason"]
        assert study.told(1, "Problem", "model.components")
        study.start(2, hello={"version": 99})
        assert study.codes(2) == [5]
        assert study.told(1, "Problem", "version 99")
        study.start(2, name="other", patience=1.0)
        assert study.codes(2) == [4]
        study.start(2)
        study.check()


def test_parties_that_never_fitted_all_end_with_the_reason(tmp_path):
    with Study(tmp_path, [[0, 1]], n_parties=2) as study:
        study.start(0)
        study.start(1, fields={"model.components": "3"})
        assert study.codes() == [5, 5]
        assert all("model.components" in study.told(number, "Outcome")[0]["reason"] for number in (0, 1))


@pytest.mark.parametrize("secure", [False, True])
def test_garbage_and_many_connections_on_the_port_do_no_harm(tmp_path, secure):
    with Study(tmp_path, RING, n_parties=4, max_iter=300, secure=secure) as study:
        busy(study)
        where = ("127.0.0.1", study.ports[3])
        kept = [socket.create_connection(where) for _ in range(50)]  # half-open ones stay so

        def knock(count):
            for number in range(count):
                with suppress(OSError), socket.create_connection(where, timeout=5) as one:
                    one.sendall((b"GET / HTTP/1.1\r\n\r\n", b"", b"\xff" * 5000, b"\x16\x03\x01\x02\x00")[number % 4])

        threads = [threading.Thread(target=knock, args=(1250,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        study.check()
        assert not secure or study.told(3, "Problem"), study.report()
        for one in kept:
            one.close()
