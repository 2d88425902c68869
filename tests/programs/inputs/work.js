// SPDX-License-Identifier: Apache-2.0
// Node at work: zlib and crypto run in the thread pool, buffers live outside the JavaScript heap.
const { createHash, pbkdf2 } = require('crypto');
const { deflate } = require('zlib');
const { promisify } = require('util');
const { Worker, isMainThread, parentPort } = require('worker_threads');

if (!isMainThread) {
  parentPort.postMessage([...Array(2000).keys()].map((i) => `w${i}`).join('').length);
} else {
  (async () => {
    const data = Buffer.alloc(300000, 'abcdefg');
    const packed = await Promise.all([1, 2, 3, 4].map((level) => promisify(deflate)(data, { level })));
    console.log(packed.map((p) => createHash('sha256').update(p).digest('hex').slice(0, 16)).join(' '));
    const keys = await Promise.all(['a', 'b'].map((s) => promisify(pbkdf2)('secret', s, 500, 32, 'sha256')));
    console.log(keys.map((k) => k.toString('hex')).join(' '));
    const worker = new Worker(__filename);
    console.log(await new Promise((done) => worker.once('message', done)));
    process.exit(7);
  })();
}
