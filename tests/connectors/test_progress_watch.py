"""What is known of a consumer beside it: whether it delivers what the brokers have."""

from streamclust_connectors.interfaces import Transient
from streamclust_connectors.kafka.progress_watch import ProgressWatch

A, B = ("in", 0), ("in", 1)


class Brokers:
    """Ends of partitions; None for one whose brokers do not answer."""

    def __init__(self, **ends):
        self.known = {("in", int(number[1:])): end for number, end in ends.items()}

    def end(self, partition, seconds):
        if self.known[partition] is None:
            raise Transient("no leader")
        return self.known[partition]

    def close(self):
        pass


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def watch(**ends):
    clock = Clock()
    found = ProgressWatch(Brokers(**ends), clock)
    found._thread = object()  # the test asks by itself
    return found, clock


def turn(found, clock, seconds, **positions):
    """Time passes; the loop polls, and the thread asks."""
    for _ in range(int(seconds)):
        clock.now += 1.0
        found.update({("in", int(number[1:])): at for number, at in positions.items()})
        found.ask()


def test_a_consumer_at_the_end_of_its_partitions_is_well():
    found, clock = watch(p0=5, p1=7)
    turn(found, clock, 100, p0=5, p1=7)
    assert (found.unread(), found.stalled) == ({}, {})
    assert found.end(A) == 5


def test_a_partition_that_has_records_and_delivers_none_is_unread_and_then_stalled():
    found, clock = watch(p0=5, p1=7)
    turn(found, clock, 1, p0=5, p1=7)
    found.inquiries.known[B] = 50
    turn(found, clock, 12, p0=5, p1=7)
    assert list(found.unread()) == [B]
    assert "43 records behind" in found.unread()[B]
    assert found.stalled == {}
    turn(found, clock, 20, p0=5, p1=7)
    assert list(found.stalled) == [B]
    turn(found, clock, 1, p0=5, p1=8)
    assert (found.unread(), found.stalled) == ({}, {}), "it delivers again"


def test_records_that_have_just_come_are_given_time():
    """A partition that was quiet for an hour is not unread at its next record."""
    found, clock = watch(p0=5)
    turn(found, clock, 1000, p0=5)
    found.inquiries.known[A] = 6
    turn(found, clock, 5, p0=5)
    assert found.unread() == {}


def test_a_partition_whose_brokers_are_silent_is_unread_but_its_consumer_is_kept():
    """Another consumer would get no answer either."""
    found, clock = watch(p0=5, p1=None)
    turn(found, clock, 60, p0=5, p1=7)
    assert list(found.unread()) == [B]
    assert "its brokers have not answered for" in found.unread()[B]
    assert "no leader" in found.unread()[B]
    assert found.stalled == {}
    found.inquiries.known[B] = 7
    turn(found, clock, 1, p0=5, p1=7)
    assert found.unread() == {}
