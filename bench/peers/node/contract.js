// The code that both peers in JavaScript share. bench/peers/README.md describes the contract.
//
// Worker and producer are two processes, as users run them. A Node process has one thread for JavaScript, and either
// side can keep it busy. This process is the worker. It forks a child, which puts the messages into the queue. If
// messages take a while, the runner starts all processes itself.

import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

// How many messages one call puts into the queue.
const BATCH = 100;
// How many messages a worker handles at the same time, unless the runner names a number of slots.
const CONCURRENCY = 100;

// Runs a peer:
//   producer(url)                     -> { put(bodies), close() }
//   worker(url, concurrency, handle)  -> { start(), close() }, which awaits handle(body) for each message
export async function run({ peer, version, producer, worker }) {
  if (!process.env.REDIS_URL) {
    throw new Error('REDIS_URL is not set');
  }
  const [role, ...args] = process.argv.slice(2);
  if (role === 'worker' || role === 'producer') {
    const [first, second] = readNumbers(args, role === 'worker' ? 'SLOTS JOB_MS' : 'EVERY_MS BODY_BYTES');
    await (role === 'worker' ? workSlowly(worker, first, second) : produce(peer, version, producer, first, second));
    process.exit(0);
  }
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
    throw new Error('expected MODE COUNT BODY_BYTES, with MODE end-to-end or consume, or worker, or producer');
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
  const worker = await makeWorker(task.redisUrl, CONCURRENCY, () => {
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

function readNumbers(args, names) {
  const numbers = args.map(Number);
  if (numbers.length !== names.split(' ').length || !numbers.every((number) => number >= 0)) {
    throw new Error(`expected ${names}, got ${args.join(' ')}`);
  }
  return numbers;
}

// Handles messages that take a while. For each line, prints how many microseconds each message waited that was handled
// since the line before. Returns at the end of stdin.
async function workSlowly(makeWorker, slots, jobMs) {
  let waits = [];
  const worker = await makeWorker(process.env.REDIS_URL, slots, async (body) => {
    const wait = nowUs() - Number(body);
    await sleep(jobMs);
    waits.push(wait);
  });
  await worker.start();
  for await (const _ of createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(waits));
    waits = [];
  }
}

// Puts messages: one every few milliseconds, or, without a pace, as many as the runner allows. Each line is a number of
// messages that may have been put in all. The answer is the number that have been put.
async function produce(peer, version, makeProducer, everyMs, bodyBytes) {
  const producer = await makeProducer(process.env.REDIS_URL);
  const body = () => String(nowUs()).padStart(bodyBytes, '0');
  let [put, allowed, ended] = [0, 0, false];
  let wake = () => {};
  const lines = createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    allowed = Number(line);
    console.log(put);
    wake();
  });
  lines.on('close', () => {
    ended = true;
    wake();
  });

  let due;
  while (!ended) {
    if (put >= allowed) {
      await new Promise((resolve) => (wake = resolve));
      continue;
    }
    if (everyMs > 0) {
      due = due === undefined ? performance.now() : due + everyMs;
      const early = due - performance.now();
      if (early > 0) {
        await sleep(early);
      }
    }
    const batch = everyMs > 0 ? 1 : Math.min(BATCH, allowed - put);
    await producer.put(Array.from({ length: batch }, body));
    put += batch;
  }
  console.log(JSON.stringify({ peer, version, put }));
}

// The clock that all processes of a machine share. Date.now() has milliseconds only.
function nowUs() {
  return Number(process.hrtime.bigint() / 1000n);
}
