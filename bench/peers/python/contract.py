"""The code that both peers in Python share. bench/peers/README.md describes the contract.

Worker and producer are two processes, as users run them, because one interpreter runs one thread at a time. This
process is the worker. It spawns a child, which puts the messages into the queue.
"""

import json
import multiprocessing
import os
import sys
import threading
import time
from importlib.metadata import version


class PeerTask:
    def __init__(self):
        try:
            self.mode, count, body_bytes = sys.argv[1:]
            self.count, self.body_bytes = int(count), int(body_bytes)
        except ValueError:
            sys.exit("expected MODE COUNT BODY_BYTES")
        if self.mode not in ("end-to-end", "consume"):
            sys.exit(f"expected end-to-end or consume, got {self.mode}")
        self.redis_url = os.environ["REDIS_URL"]

    def body(self):
        return "x" * self.body_bytes


class MessageCounter:
    """Counts handled messages. The handlers do nothing else."""

    def __init__(self, expected):
        self.handled = 0
        self.expected = expected
        self.end = None
        self.complete = threading.Event()
        # Dramatiq calls handlers in several threads, and `+= 1` is not atomic.
        self.lock = threading.Lock()

    def count(self):
        with self.lock:
            self.handled += 1
            if self.handled == self.expected:
                self.end = time.monotonic()
                self.complete.set()


def run(peer, package, producer, start_worker, new_counter=MessageCounter):
    """Runs a peer.

    The child calls `producer(task)`, which returns a function that puts one message into the queue. This process calls
    `start_worker(task, counter)`. It returns when the worker is ready, with the time at which it was. The start is not
    timed, because a user starts a worker once, and not for every message.
    """
    task = PeerTask()
    counter = new_counter(task.count)
    # Spawn and not fork, because a child must not inherit connections and threads.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_produce, args=(producer, task, theirs), daemon=True)
    child.start()
    ours.recv()

    if task.mode == "consume":
        ours.send("go")
        _join(child)
        print("filled", file=sys.stderr, flush=True)
        sys.stdin.readline()
        start = start_worker(task, counter)
    else:
        start_worker(task, counter)
        start = time.monotonic()
        ours.send("go")
    counter.complete.wait()
    _join(child)

    if counter.handled != task.count:
        sys.exit(f"{peer} handled {counter.handled} of {task.count} messages")
    result = {"peer": peer, "version": version(package), "mode": task.mode, "count": task.count}
    print(json.dumps({**result, "seconds": counter.end - start}), flush=True)
    # The frameworks take seconds to shut down, and there is nothing left to do.
    os._exit(0)


def _produce(producer, task, parent):
    put = producer(task)
    parent.send("ready")
    parent.recv()
    body = task.body()
    for _ in range(task.count):
        put(body)


def _join(child):
    child.join()
    if child.exitcode != 0:
        print(f"the producer exited with {child.exitcode}", file=sys.stderr)
        os._exit(1)
