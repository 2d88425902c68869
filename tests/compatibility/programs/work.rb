# SPDX-License-Identifier: Apache-2.0
threads = 6.times.map { |number| Thread.new { (1..8000).map { |i| "#{number}-#{i}" }.sum(&:length) } }
puts threads.map(&:value).join(' ')
children = 5.times.map { |number| fork { ('x' * 100_000).scan(/x/); exit! number } }
puts children.map { |child| Process.wait2(child)[1].exitstatus }.join(' ')
puts `echo child`, $?.exitstatus
GC.start
puts ObjectSpace.count_objects[:TOTAL].positive?
