"""What two agents seal for each other, through others that pass it on."""

import pytest

from vpem.privacy.sealing import SealError, Sealing


def test_what_is_sealed_opens_for_its_receiver_alone_and_never_twice_the_same():
    one, other, stranger = Sealing(), Sealing(), Sealing()
    sealed = [one.close(other.public, b"run", b"label", b"content") for _ in range(2)]
    assert sealed[0] != sealed[1], "a nonce that came again would show what two contents have in common"
    assert [other.open(one.public, b"run", b"label", found) for found in sealed] == [b"content"] * 2
    assert Sealing(other.private).open(one.public, b"run", b"label", sealed[0]) == b"content", "after a restart"
    changed = sealed[0][:-1] + bytes([sealed[0][-1] ^ 1])
    for end, run, label, found in (
        (stranger, b"run", b"label", sealed[0]),
        (other, b"another", b"label", sealed[0]),
        (other, b"run", b"another", sealed[0]),
        (other, b"run", b"label", changed),
        (other, b"run", b"label", sealed[0][:5]),
    ):
        with pytest.raises(SealError):
            end.open(one.public, run, label, found)
