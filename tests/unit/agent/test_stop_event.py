"""Stopping from a signal handler, whenever the signal comes."""

import subprocess
import sys
import threading

from kproxy.agent.run import StopEvent

# A trace function runs where a handler may: in the same thread, between two instructions. With an Event this hangs.
EVERYWHERE = """
import faulthandler, sys
from kproxy.agent.run import StopEvent

faulthandler.dump_traceback_later(60, exit=True)
event, calls = StopEvent(), 0

def handle(*_):
    global calls
    calls += 1
    event.set()
    return handle

sys.settrace(handle)
assert event.wait(60)
sys.settrace(None)
assert calls > 2, calls
"""


def test_a_handler_may_set_it_at_any_moment() -> None:
    done = subprocess.run([sys.executable, "-c", EVERYWHERE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_stays_set_and_is_waited_for_by_another_thread() -> None:
    event = StopEvent()
    assert not event.wait(0.0)
    threading.Timer(0.01, event.set).start()
    assert event.wait(60)
    assert event.is_set()
    assert event.wait(0.0)
    assert event.wait(60)
