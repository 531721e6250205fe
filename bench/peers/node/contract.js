// The code that both peers in JavaScript share. bench/peers/README.md describes the contract.
//
// Worker and producer are two processes, as users run them. A Node process has one thread for JavaScript, and either
// side can keep it busy. This process is the worker. It forks a child, which puts the messages into the queue.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';

// How many messages one call puts into the queue.
const BATCH = 100;

// Runs a peer:
//   producer()      -> { put(bodies), close() }
//   worker(onEach)  -> { start(), close() }, which calls onEach for each handled message
export async function run({ peer, version, producer, worker }) {
  const task = readTask();
  if (process.send) {
    await putAll(task, await producer(task.redisUrl));
  } else {
    await workAll(task, peer, version, worker);
  }
}

export function versionOf(module) {
  // An import would not do, because not every package exports its package.json.
  const file = new URL(`node_modules/${module}/package.json`, import.meta.url);
  return JSON.parse(readFileSync(file, 'utf8')).version;
}

function readTask() {
  const [mode, count, bodyBytes] = process.argv.slice(2);
  if (!['end-to-end', 'consume'].includes(mode) || !(count > 0) || !(bodyBytes >= 0)) {
    throw new Error('expected MODE COUNT BODY_BYTES, with MODE end-to-end or consume');
  }
  if (!process.env.REDIS_URL) {
    throw new Error('REDIS_URL is not set');
  }
  return { redisUrl: process.env.REDIS_URL, mode, count: Number(count), bodyBytes: Number(bodyBytes) };
}

async function putAll(task, producer) {
  process.send('ready');
  await once(process, 'message');
  const body = 'x'.repeat(task.bodyBytes);
  for (let put = 0; put < task.count; put += BATCH) {
    await producer.put(Array(Math.min(BATCH, task.count - put)).fill(body));
  }
  await producer.close();
  process.disconnect();
}

async function workAll(task, peer, version, makeWorker) {
  const child = fork(process.argv[1], process.argv.slice(2));
  const childEnd = once(child, 'exit');
  childEnd.then(([code]) => {
    if (code !== 0) {
      console.error(`the producer exited with ${code}`);
      process.exit(1);
    }
  });
  await once(child, 'message');

  let handled = 0;
  let complete;
  const completed = new Promise((resolve) => (complete = resolve));
  const worker = await makeWorker(task.redisUrl, () => {
    handled += 1;
    if (handled === task.count) {
      complete(process.hrtime.bigint());
    }
  });

  if (task.mode === 'consume') {
    child.send('go');
    await childEnd;
    await filled();
  } else {
    await worker.start();
  }
  const start = process.hrtime.bigint();
  if (task.mode === 'consume') {
    await worker.start();
  } else {
    child.send('go');
  }
  const seconds = Number((await completed) - start) / 1e9;
  await childEnd;
  await worker.close();
  if (handled !== task.count) {
    throw new Error(`${peer} handled ${handled} of ${task.count} messages`);
  }
  console.log(JSON.stringify({ peer, version, mode: task.mode, count: task.count, seconds }));
  process.exit(0);
}

// Reports that all messages are in the queue, and waits until the runner has read the state of the server.
async function filled() {
  console.error('filled');
  process.stdin.resume();
  await Promise.race([once(process.stdin, 'data'), once(process.stdin, 'end')]);
  process.stdin.pause();
}
