// SPDX-License-Identifier: Apache-2.0
// held.js MODE: memory of a Node.js program with a known truth for bench/held.
const mode = process.argv[2];
const base = Array.from({length: 50000}, (_, n) => `a text of the base ${n} ${'x'.repeat(n % 100)}`);
let keep = [];
console.log('ready');
setInterval(() => {
  for (let i = 0; i < 10; i++) {
    if (mode === 'buffers') keep.push(Buffer.alloc(9000, 1));
    else if (mode === 'objects') keep.push(new Array(500).fill(i + base.length));
    else keep = [Buffer.alloc(9000, 1)];
  }
}, 20);
