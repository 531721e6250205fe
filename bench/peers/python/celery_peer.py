"""Celery with Redis as its broker.

Settings, from https://docs.celeryq.dev/en/stable/userguide/optimizing.html: the worker prefetches 128 messages ("64, or
128" for "many short-running tasks"), and messages are transient. Celery keeps no results, and sends nothing that no
program here reads: no events, gossip, mingle, heartbeats or remote control. As in all other peers, the worker
acknowledges a message after it is handled (`task_acks_late`). The pool is the default one, prefork, with two processes.
The pools `solo` and `threads` were no faster end to end, and slower with `consume`.

If messages take a while, the pool has one thread per slot
(https://docs.celeryq.dev/en/stable/userguide/concurrency/index.html), because a process per slot would be 128 processes.
The worker prefetches 4 messages for each, which is the default: with 128, one worker would take all that wait.
"""

import multiprocessing
import queue
import threading
import time

from celery import Celery
from celery.signals import worker_ready

import contract

PREFETCH = 128
PROCESSES = 2
PREFETCH_PER_THREAD = 4


class SharedCounter(contract.MessageCounter):
    """Counts messages in all processes of the pool, which this process forks."""

    def __init__(self, expected):
        super().__init__(expected)
        self.shared = multiprocessing.get_context("fork").Value("q", 0)
        threading.Thread(target=self._watch, daemon=True).start()

    def count(self, _body):
        with self.shared.get_lock():
            self.shared.value += 1

    def _watch(self):
        # At most 2 ms late, in a run of seconds.
        while self.shared.value < self.expected:
            time.sleep(0.002)
        self.end = time.monotonic()
        self.handled = self.shared.value
        self.complete.set()


def declare(task, handle, prefetch=PREFETCH):
    def job(body):
        handle(body)

    app = Celery("jobs", broker=task.redis_url, set_as_current=False)
    app.conf.update(
        task_acks_late=True,
        task_ignore_result=True,
        task_default_delivery_mode="transient",
        worker_prefetch_multiplier=prefetch,
        worker_send_task_events=False,
        worker_enable_remote_control=False,
        # stdout is for the result only.
        worker_redirect_stdouts=False,
        broker_connection_retry_on_startup=True,
    )
    return app, app.task(job, name="job")


def producer(task):
    app, job = declare(task, None)
    # One connection for all messages, instead of one from the pool per message.
    amqp_producer = app.amqp.Producer(app.connection_for_write())
    return lambda body: job.apply_async((body,), producer=amqp_producer)


def start_worker(task, handle):
    if task.slots:
        pool, prefetch = dict(pool="threads", concurrency=task.slots), PREFETCH_PER_THREAD
    else:
        pool, prefetch = dict(pool="prefork", concurrency=PROCESSES), PREFETCH
    app, _ = declare(task, handle, prefetch)
    up = queue.SimpleQueue()
    worker_ready.connect(lambda **_: up.put(time.monotonic()), weak=False)
    silent = dict(without_gossip=True, without_mingle=True, without_heartbeat=True, quiet=True, loglevel="ERROR")
    worker = app.Worker(**pool, **silent)
    threading.Thread(target=worker.start, daemon=True).start()
    return up.get()


if __name__ == "__main__":
    contract.run("Celery", "celery", producer, start_worker, SharedCounter)
