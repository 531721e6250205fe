"""Dramatiq with its Redis broker.

Settings: one worker process with 8 threads, as its command line starts for each core (https://dramatiq.io/guide.html).
More processes would compete with the producer and Redis for cores. The worker prefetches 200 messages instead of 16
(`dramatiq_queue_prefetch`, https://dramatiq.io/changelog.html), which makes it twice as fast. The only middleware is
Retries, because the guarantee needs it. The others (limits of time and age, callbacks, pipelines, notifications,
https://dramatiq.io/reference.html) cost time, and this program does not use them.

If messages take a while, there is one thread per slot ("--threads", https://dramatiq.io/guide.html).
"""

import os
import time

# dramatiq reads this when it is imported.
os.environ["dramatiq_queue_prefetch"] = "200"

import dramatiq  # noqa: E402
from dramatiq.brokers.redis import RedisBroker  # noqa: E402
from dramatiq.middleware import Retries  # noqa: E402

import contract  # noqa: E402

THREADS = 8


def declare(task, handle):
    def job(body):
        handle(body)

    broker = RedisBroker(url=task.redis_url, middleware=[Retries()])
    return broker, dramatiq.actor(job, broker=broker)


def producer(task):
    _, job = declare(task, None)
    return job.send


def start_worker(task, handle):
    broker, _ = declare(task, handle)
    worker = dramatiq.Worker(broker, worker_threads=task.slots or THREADS)
    start = time.monotonic()
    worker.start()
    return start


if __name__ == "__main__":
    contract.run("Dramatiq", "dramatiq", producer, start_worker)
