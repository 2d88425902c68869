# SPDX-License-Identifier: Apache-2.0
# A web application for puma: JSON of a size that the path names, a cache that ages, templates.
require "json"
require "erb"

CACHE = {}
LOCK = Mutex.new
PAGE = ERB.new("<html><ul><% rows.each do |row| %><li><%= row['name'] %>: <%= row['tags'].join(', ') %></li><% end %></ul></html>")

def rows(count)
  Array.new(count) { |i| { "id" => i, "name" => "item #{i}" * 3, "tags" => %w[a b c].map { |tag| "#{tag}#{i}" }, "price" => i * 1.5 } }
end

run(lambda do |env|
  _, kind, key, size = env["PATH_INFO"].split("/")
  count = [size.to_i, 1].max
  case kind
  when "json"
    text = JSON.generate(rows(count))
    LOCK.synchronize { CACHE[key] = text; CACHE.shift if CACHE.size > 400 }
    [200, { "Content-Type" => "application/json" }, [text]]
  when "parse"
    old = LOCK.synchronize { CACHE[key] } || JSON.generate(rows(10))
    [200, { "Content-Type" => "text/plain" }, [JSON.parse(old).sum { |row| row["price"] }.to_s]]
  when "page"
    [200, { "Content-Type" => "text/html" }, [PAGE.result_with_hash(rows: rows(count))]]
  else
    [200, { "Content-Type" => "text/plain" }, ["ok"]]
  end
end)
