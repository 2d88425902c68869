// SPDX-License-Identifier: Apache-2.0
// Six workers, each allocates buffers and strings, answers and ends.
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

if (isMainThread) {
  const answers = [];
  let open = 6;
  for (let number = 0; number < 6; number++) {
    const worker = new Worker(__filename, { workerData: number });
    worker.on('message', (answer) => { answers[number] = answer; });
    worker.on('error', (error) => { answers[number] = error.message; });
    worker.on('exit', () => { if (--open === 0) console.log(answers.join(' ')); });
  }
} else {
  let sum = 0;
  for (let round = 0; round < 300; round++) sum += Buffer.alloc(1000 * (round % 50), workerData).length;
  const text = JSON.stringify(Array.from({ length: 5000 }, (_, i) => ({ i, text: 'x'.repeat(i % 30) })));
  parentPort.postMessage(sum + JSON.parse(text).length);
}
