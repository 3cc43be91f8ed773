"""Memory of large arrays that is used again: never while a view of it is left."""

import numpy as np

from vpem.core import rooms


def test_a_room_is_used_again_when_nothing_of_its_array_is_left():
    rooms.forget_rooms()
    one = rooms.room_for(1000, 300)
    where, part = one.ctypes.data, one[5:7].T
    del one
    other = rooms.room_for(300_000)
    assert not np.shares_memory(part, other)
    del part
    again = rooms.room_for(300_000, 1)
    assert again.ctypes.data == where
    assert again.flags.writeable
    assert again.flags.c_contiguous
    assert not np.shares_memory(other, again)


def test_few_rooms_are_kept_and_only_of_large_arrays():
    rooms.forget_rooms()
    arrays = [rooms.room_for(200_000) for _ in range(2 * rooms.MOST_FREE)]
    small = rooms.room_for(10)
    del arrays, small
    assert len(rooms._free) == rooms.MOST_FREE
    assert rooms.room_for(400_000).shape == (400_000,), "of another size"
    rooms.forget_rooms()
    assert len(rooms._free) == 0
