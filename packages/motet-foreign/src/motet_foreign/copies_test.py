"""A game that holds what cannot be copied is found before the first step."""

import threading

from motet_foreign.copies import can_be_copied


def test_a_lock_cannot_be_copied_and_a_board_can():
    assert can_be_copied([[0, 1], [1, 0]])
    assert not can_be_copied([threading.Lock()])
