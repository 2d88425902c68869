# SPDX-License-Identifier: Apache-2.0
# sales.rb FILE: groups sales and writes them out again.
require 'json'
sales = JSON.parse(File.read(ARGV[0]))
by_town = sales.group_by { |s| s['town'] }
by_town.sort.each do |town, list|
  total = list.sum { |s| s['amount'] * s['price'] }
  best = list.group_by { |s| s['item'] }.max_by { |item, l| [l.sum { |s| s['amount'] }, item] }
  puts format('%s %.2f %s', town, total, best[0])
end
text = sales.map { |s| s.map { |k, v| "#{k}=#{v.to_s.tr('a-e', 'A-E')}" }.join(';') }
puts text.sort.uniq.map(&:length).sum
puts JSON.generate(sales.map { |s| s.merge('note' => s['note'].reverse) }).length
