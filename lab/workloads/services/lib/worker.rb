# SPDX-License-Identifier: Apache-2.0
# Jobs of sidekiq: JSON built and parsed, and results that are kept for a while.
require "sidekiq"
require "json"

Sidekiq.configure_server { |config| config.redis = { url: "redis://127.0.0.1:#{ENV.fetch('PORT2')}" } }

class Work
  include Sidekiq::Worker
  KEPT = []
  LOCK = Mutex.new

  def perform(size)
    work(size)
  ensure
    Sidekiq.redis { |store| store.incr("done") }
  end

  def work(size)
    rows = Array.new(size) { |i| { "id" => i, "name" => "item #{i}" * 3, "tags" => %w[a b c].map { |tag| "#{tag}#{i}" } } }
    text = JSON.generate(rows)
    names = JSON.parse(text).map { |row| row["name"].upcase }.join(",")
    LOCK.synchronize { KEPT << names; KEPT.shift if KEPT.size > 300 }
  end
end
