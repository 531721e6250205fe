"""The code that both peers in Python share. bench/peers/README.md describes the contract.

Worker and producer are two processes, as users run them, because one interpreter runs one thread at a time. This
process is the worker. It spawns a child, which puts the messages into the queue. If messages take a while, the runner
starts all processes itself.
"""

import json
import multiprocessing
import os
import sys
import threading
import time
from importlib.metadata import version


class PeerTask:
    # How many messages the worker handles at the same time. None if its program decides.
    slots = None

    def __init__(self):
        try:
            self.mode, count, body_bytes = sys.argv[1:]
            self.count, self.body_bytes = int(count), int(body_bytes)
        except ValueError:
            sys.exit("expected MODE COUNT BODY_BYTES")
        if self.mode not in ("end-to-end", "consume"):
            sys.exit(f"expected end-to-end, consume, worker or producer, got {self.mode}")
        self.redis_url = os.environ["REDIS_URL"]

    def body(self):
        return "x" * self.body_bytes


class WorkerTask:
    def __init__(self):
        self.slots, job_ms = _numbers("SLOTS JOB_MS")
        self.job_seconds = job_ms / 1000
        self.redis_url = os.environ["REDIS_URL"]


class ProducerTask:
    def __init__(self):
        every_ms, self.body_bytes = _numbers("EVERY_MS BODY_BYTES")
        self.every_seconds = every_ms / 1000
        self.redis_url = os.environ["REDIS_URL"]

    def body(self):
        return str(_now_us()).zfill(self.body_bytes)


class MessageCounter:
    """Counts handled messages. The handlers do nothing else."""

    def __init__(self, expected):
        self.handled = 0
        self.expected = expected
        self.end = None
        self.complete = threading.Event()
        # Dramatiq calls handlers in several threads, and `+= 1` is not atomic.
        self.lock = threading.Lock()

    def count(self, _body):
        with self.lock:
            self.handled += 1
            if self.handled == self.expected:
                self.end = time.monotonic()
                self.complete.set()


def run(peer, package, producer, start_worker, new_counter=MessageCounter):
    """Runs a peer.

    The child calls `producer(task)`, which returns a function that puts one message into the queue. This process calls
    `start_worker(task, handle)`. It returns when the worker is ready, with the time at which it was. The worker calls
    `handle(body)` for each message. The start is not timed, because a user starts a worker once, and not for every
    message.
    """
    role = sys.argv[1] if len(sys.argv) > 1 else None
    if role == "worker":
        _work_slowly(WorkerTask(), start_worker)
    if role == "producer":
        _produce_slowly(ProducerTask(), producer, {"peer": peer, "version": version(package)})
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
        start = start_worker(task, counter.count)
    else:
        start_worker(task, counter.count)
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


def _work_slowly(task, start_worker):
    """Handles messages that take a while.

    For each line, prints how many microseconds each message waited that was handled since the line before. Ends at the
    end of stdin.
    """
    waits = []

    def handle(body):
        wait = _now_us() - int(body)
        time.sleep(task.job_seconds)
        waits.append(wait)

    start_worker(task, handle)
    for _ in sys.stdin:
        # Handlers append meanwhile.
        taken = waits[:]
        del waits[: len(taken)]
        print(json.dumps(taken), flush=True)
    os._exit(0)


def _produce_slowly(task, producer, result):
    """Puts messages: one every few milliseconds, or, without a pace, as many as the runner allows.

    Each line is a number of messages that may have been put in all. The answer is the number that have been put.
    """
    put = producer(task)
    state = threading.Condition()
    done, allowed, ended = 0, 0, False

    def follow():
        nonlocal allowed, ended
        for line in sys.stdin:
            with state:
                allowed = int(line)
                print(done, flush=True)
                state.notify()
        with state:
            ended = True
            state.notify()

    threading.Thread(target=follow, daemon=True).start()
    due = None
    while True:
        with state:
            state.wait_for(lambda: ended or done < allowed)
            if ended:
                break
        if task.every_seconds > 0:
            due = time.monotonic() if due is None else due + task.every_seconds
            time.sleep(max(0, due - time.monotonic()))
        put(task.body())
        done += 1
    print(json.dumps({**result, "put": done}), flush=True)
    os._exit(0)


def _numbers(names):
    try:
        first, second = map(int, sys.argv[2:])
    except ValueError:
        sys.exit(f"expected {sys.argv[1]} {names}")
    return first, second


def _now_us():
    """The clock that all processes of a machine share."""
    return time.monotonic_ns() // 1000
