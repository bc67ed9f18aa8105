"""Programs whose threads are greenlets, with a ticker that shows for how long no greenlet could run."""

from __future__ import annotations

FRAMEWORKS = ("gevent", "eventlet")

PATCHED = """
import sys, warnings
warnings.simplefilter("ignore")
if sys.argv[1] == "gevent":
    from gevent import monkey
    monkey.patch_all()
else:
    import eventlet
    eventlet.monkey_patch()
import threading, time

class Ticker:
    def __init__(self):
        self.ticks, self.silence_s, self.over = 0, 0.0, False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        last = time.monotonic()
        while not self.over:
            time.sleep(0.001)
            now = time.monotonic()
            self.ticks, self.silence_s, last = self.ticks + 1, max(self.silence_s, now - last), now

    def stop(self):
        self.over = True
        self.thread.join()
"""
"""The beginning of a program, whose first argument is one of :data:`FRAMEWORKS`."""
