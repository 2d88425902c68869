-- SPDX-License-Identifier: Apache-2.0
local rows, sum = {}, 0
for i = 1, 60000 do rows[i] = { n = i, s = ('x'):rep(i % 40) .. i } end
table.sort(rows, function(a, b) return a.s < b.s end)
for i, row in ipairs(rows) do sum = (sum * 31 + row.n * i) % 1000003 end
collectgarbage()
local parts = {}
for i = 1, 20000 do parts[#parts + 1] = tostring(i):gsub('1', 'one') end
print(sum, #table.concat(parts))
