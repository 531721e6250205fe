"""Dramatiq with its Redis broker.

Settings: one worker process with 8 threads, which is what its command line starts for each core
(https://dramatiq.io/guide.html); more processes would fight the producer and Redis for cores. It prefetches 200
messages (`dramatiq_queue_prefetch`, https://dramatiq.io/changelog.html) instead of 16, which doubles what
it handles. No middleware but Retries, which the guarantee needs: the others (limits of time and age, callbacks,
pipelines, notifications, https://dramatiq.io/reference.html) take time for what is not used here.
"""

import os
import time

# Read when dramatiq is imported.
os.environ["dramatiq_queue_prefetch"] = "200"

import dramatiq  # noqa: E402
from dramatiq.brokers.redis import RedisBroker  # noqa: E402
from dramatiq.middleware import Retries  # noqa: E402

import contract  # noqa: E402

THREADS = 8


def declare(task, on_each):
    def job(body):
        on_each()

    broker = RedisBroker(url=task.redis_url, middleware=[Retries()])
    return broker, dramatiq.actor(job, broker=broker)


def producer(task):
    _, job = declare(task, lambda: None)
    return job.send


def start_worker(task, tally):
    broker, _ = declare(task, tally.count)
    worker = dramatiq.Worker(broker, worker_threads=THREADS)
    start = time.monotonic()
    worker.start()
    return start


if __name__ == "__main__":
    contract.run("Dramatiq", "dramatiq", producer, start_worker)
