// SPDX-License-Identifier: Apache-2.0
// sales.js FILE: groups sales, compresses them in the pool of threads and writes sums.
const fs = require('fs'), zlib = require('zlib'), crypto = require('crypto');
const text = fs.readFileSync(process.argv[2], 'utf8');
const sales = JSON.parse(text);
const towns = new Map();
for (const s of sales) {
  const t = towns.get(s.town) || { total: 0, items: new Map() };
  t.total += s.amount;
  t.items.set(s.item, (t.items.get(s.item) || 0) + s.amount);
  towns.set(s.town, t);
}
for (const [town, t] of [...towns].sort()) console.log(town, t.total, [...t.items].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0][0]);
const parts = [];
for (let at = 0; at < text.length; at += 200000) parts.push(Buffer.from(text.slice(at, at + 200000)));
const packed = new Array(parts.length);
let left = parts.length;
parts.forEach((part, i) => zlib.deflate(part, { level: 6 }, (error, out) => {
  if (error) throw error;
  packed[i] = crypto.createHash('sha1').update(out).digest('hex');
  if (--left === 0) console.log(packed.join('').length, crypto.createHash('sha1').update(packed.join('')).digest('hex'));
}));
