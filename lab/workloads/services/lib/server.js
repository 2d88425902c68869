// SPDX-License-Identifier: Apache-2.0
// JSON of a size that the path names, and buffers outside of V8's heap.
const http = require("http");
const zlib = require("zlib");
const cache = new Map();
const rows = (n) => Array.from({ length: n }, (_, i) => ({ id: i, name: `item ${i}`.repeat(3), tags: ["a", "b", "c"].map((t) => t + i), price: i * 1.5 }));
http.createServer((request, response) => {
  const [, kind, key, size] = request.url.split("/");
  const count = Math.max(1, Number(size) || 1);
  if (kind === "json") {
    const text = Buffer.from(JSON.stringify(rows(count)));
    cache.set(key, text);
    if (cache.size > 400) cache.delete(cache.keys().next().value);
    response.end(text);
  } else if (kind === "zip") {
    zlib.gzip(cache.get(key) || Buffer.alloc(count * 100, "x"), (error, data) => response.end(data));
  } else response.end("ok");
}).listen(Number(process.env.PORT), "127.0.0.1");
