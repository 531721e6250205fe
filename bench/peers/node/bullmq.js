// BullMQ. Settings:
// - The producer adds jobs with addBulk ("faster since it reduces the number of roundtrips",
//   https://docs.bullmq.io/guide/queues/adding-bulks).
// - The concurrency is 100 ("between 100 and 300 is a quite standard setting",
//   https://docs.bullmq.io/guide/parallelism-and-concurrency).
// - The worker removes finished jobs at once (https://docs.bullmq.io/guide/workers/auto-removal-of-jobs).
// If messages take a while, the concurrency is the number of slots. A single message is added with add.

import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { run, versionOf } from './contract.js';

const NAME = 'jobs';

// BullMQ requires this setting on every connection of a worker, because a worker waits forever.
const connect = (url) => new Redis(url, { maxRetriesPerRequest: null });

async function producer(url) {
  const connection = connect(url);
  const queue = new Queue(NAME, { connection });
  await queue.waitUntilReady();
  return {
    put: (bodies) =>
      bodies.length === 1
        ? queue.add('job', bodies[0])
        : queue.addBulk(bodies.map((body) => ({ name: 'job', data: body }))),
    close: async () => {
      await queue.close();
      connection.disconnect();
    },
  };
}

async function worker(url, concurrency, handle) {
  const options = {
    connection: connect(url),
    concurrency,
    removeOnComplete: { count: 0 },
    autorun: false,
  };
  const worker = new Worker(NAME, async (job) => handle(job.data), options);
  await worker.waitUntilReady();
  return {
    start: () => {
      worker.run();
    },
    close: () => worker.close(),
  };
}

await run({ peer: 'BullMQ', version: versionOf('bullmq'), producer, worker });
