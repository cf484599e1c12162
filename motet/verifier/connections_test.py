"""Whose place a new connection takes; tests/verifier_attacks_test.py has real ones."""

import pytest

from motet.verifier.connections import Connections, network
from motet.verifier.limits import Limits


class Fake:
    """A connection that has waited for its client since `since`, or is being answered."""

    def __init__(self, connections, address, since=None):
        self.address, self.waiting_since, self.waits_for_client = address, since, since is not None
        self._connections = connections
        connections.add(self)

    def drop(self):
        self._connections.remove(self)


def opened(most, per_address, *addresses):
    """Connections that have waited the longer the earlier they are named."""
    found = Connections(Limits(max_connections=most, max_connections_per_address=per_address), files=1000)
    return found, [Fake(found, address, since) for since, address in enumerate(addresses)]


def left(connections, fakes):
    return [number for number, one in enumerate(fakes) if one in connections._all()]


def test_there_is_room_up_to_both_limits():
    connections, fakes = opened(4, 3, "a", "a", "b")
    assert connections.make_room("a")
    assert connections.make_room("c")
    assert left(connections, fakes) == [0, 1, 2]


def test_an_address_at_its_limit_gives_a_place_of_its_own():
    connections, fakes = opened(10, 3, "b", "a", "a", "a")
    assert connections.make_room("a")
    assert left(connections, fakes) == [0, 2, 3]


def test_a_full_server_takes_the_place_from_the_address_that_has_the_most():
    connections, fakes = opened(5, 4, "b", "b", "a", "a", "a")
    assert connections.make_room("c")
    assert left(connections, fakes) == [0, 1, 3, 4]


def test_connections_that_are_being_answered_keep_their_places():
    connections, fakes = opened(3, 2, "b", "a", "a")
    for one in fakes[1:]:
        one.waits_for_client = False
    assert not connections.make_room("a")
    assert left(connections, fakes) == [0, 1, 2]
    assert connections.make_room("c")
    assert left(connections, fakes) == [1, 2]


def test_few_files_lower_both_limits_alike():
    limits = Limits(max_connections=800, max_connections_per_address=400)
    found = Connections(limits, files=200)
    assert (found.most, found.most_per_address) == (200, 100)
    assert (Connections(limits, files=1).most_per_address, Connections(limits, files=9999).most) == (1, 800)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_ipv6_network_counts_as_one_address(host, expected):
    assert network(host) == expected
