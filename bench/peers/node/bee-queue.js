// bee-queue. Settings, from its README:
// - The producer saves jobs with saveAll ("pushing all the work out on the wire before hearing back").
// - There are no events, because nothing reads them (getEvents, sendEvents and storeJobs are off).
// - The worker removes finished jobs at once (removeOnSuccess).
// - The concurrency is 100.
// If messages take a while, the concurrency is the number of slots. A single message is saved with save.

import Queue from 'bee-queue';
import { run, versionOf } from './contract.js';

const NAME = 'jobs';

const settings = (url, isWorker) => ({
  redis: { url },
  isWorker,
  getEvents: false,
  sendEvents: false,
  storeJobs: false,
  removeOnSuccess: true,
});

async function producer(url) {
  const queue = new Queue(NAME, settings(url, false));
  await queue.ready();
  return {
    put: async (bodies) => {
      if (bodies.length === 1) {
        await queue.createJob(bodies[0]).save();
        return;
      }
      const errors = await queue.saveAll(bodies.map((body) => queue.createJob(body)));
      if (errors.size > 0) {
        throw new Error(`${errors.size} jobs were not saved`);
      }
    },
    close: () => queue.close(),
  };
}

async function worker(url, concurrency, handle) {
  const queue = new Queue(NAME, settings(url, true));
  await queue.ready();
  return {
    start: () => queue.process(concurrency, async (job) => handle(job.data)),
    close: () => queue.close(),
  };
}

await run({ peer: 'bee-queue', version: versionOf('bee-queue'), producer, worker });
