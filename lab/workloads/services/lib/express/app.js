// SPDX-License-Identifier: Apache-2.0
// A shop in Express: JSON in and out, pages by a template, compression, sessions that age.
const path = require("path");
const modules = (name) => require(path.join(process.env.SETUP, "node_modules", name));
const express = modules("express");
const compression = modules("compression");
const ejs = modules("ejs");

const page = ejs.compile(`<h1><%= title %></h1><table><% for (const one of rows) { %>
<tr><td><%= one.id %></td><td><%= one.name %></td><td><%= one.tags.join(", ") %></td><td><%= one.price.toFixed(2) %></td></tr><% } %>
</table><p>end</p>`);
const rows = (n, word) => Array.from({ length: n }, (_, i) => ({ id: i, name: `${word} ${i}`.repeat(3), tags: ["a", "b", "c"].map((t) => t + i), price: i * 1.5 }));
const orders = new Map();

const app = express();
app.use(compression());
app.use(express.json({ limit: "4mb" }));
app.get("/", (request, response) => response.send("ok"));
app.get("/items/:count", (request, response) => response.json({ items: rows(Number(request.params.count), "item"), end: true }));
app.get("/page/:count", (request, response) => response.send(page({ title: "Items", rows: rows(Number(request.params.count), "<item>") })));
app.post("/orders/:id", (request, response) => {
  const lines = request.body.lines.map((line) => ({ ...line, total: line.price * line.count }));
  orders.delete(request.params.id);
  orders.set(request.params.id, lines);
  if (orders.size > 3000) orders.delete(orders.keys().next().value);
  response.json({ id: request.params.id, sum: lines.reduce((sum, line) => sum + line.total, 0) });
});
app.get("/orders/:id", (request, response) => response.json({ id: request.params.id, lines: orders.get(request.params.id) || [] }));
const server = app.listen(Number(process.env.PORT), "127.0.0.1");
process.on("SIGTERM", () => { server.close(() => process.exit(0)); server.closeAllConnections(); });
