#!/usr/bin/env node
// A worker that has several messages in hand and answers them in any order.
//
//     estafeta run --ring pages --handle-lines 'node worker.js' --in-hand 10
//     estafeta publish --ring pages '{"url":"https://example.com","ms":50}'

const lines = require('node:readline').createInterface({ input: process.stdin });
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Returns the reply to one message. Up to ten of these calls wait at the same time.
async function handle(message) {
  let page;
  try {
    page = JSON.parse(message.body);
  } catch (error) {
    return { outcome: 'fail', reason: `not JSON: ${error.message}` }; // a dead letter at once
  }
  await sleep(page.ms ?? 0); // here a real worker would fetch the page
  if (page.status === 429) return { outcome: 'snooze', after: '1m' }; // too many requests: no attempt is used up
  if (page.status >= 500) throw new Error(`the server answered ${page.status}`);
  // Redis counts this page in the same step that records the message as done, so it counts each page once.
  return { outcome: 'done', result: { url: page.url }, effects: [{ add: 'pages', n: 1 }] };
}

lines.on('line', async (line) => {
  const message = JSON.parse(line);
  // A handler that throws must still answer, or its message would run into its time limit.
  const reply = await handle(message).catch((error) => ({ outcome: 'retry', reason: error.message }));
  // Node.js keeps no buffer for a pipe, so there is nothing to flush. console.log would do the same.
  process.stdout.write(`${JSON.stringify({ id: message.id, ...reply })}\n`);
});
// At the end of stdin, Node.js exits by itself when the last call has answered.
