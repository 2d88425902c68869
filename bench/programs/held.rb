# SPDX-License-Identifier: Apache-2.0
# held.rb MODE: memory of a Ruby program with a known truth for bench/held.
require "fiddle"
mode = ARGV[0]
strdup = Fiddle::Function.new(Fiddle::Handle::DEFAULT["strdup"], [Fiddle::TYPE_VOIDP], Fiddle::TYPE_VOIDP)
base = (0...20000).map { |i| "x" * (i % 900) + i.to_s }
keep = []
$stdout.sync = true
puts "ready"
loop do
  40.times do |i|
    if mode == "extension" then strdup.call("forgotten by an extension #{i} " * 20)
    elsif mode == "list" then keep << "y" * (1000 + i)
    else "z" * 3000 end
  end
  sleep 0.02
end
