"""Signals to the launcher become a wish to stop."""

import os
import select
import signal

import pytest

from argosy.launch.signals import StopSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_noted_and_wakes_a_poll(number):
    before = signal.getsignal(number)
    with StopSignals() as signals:
        assert signals.asked is None
        os.kill(os.getpid(), number)
        assert select.select([signals.fd], [], [], 10)[0] == [signals.fd]
        signals.drain()
        assert select.select([signals.fd], [], [], 0)[0] == []
        assert signals.asked is number
    assert signal.getsignal(number) is before


def test_a_second_signal_changes_nothing():
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.asked is signal.SIGTERM
