-- SPDX-License-Identifier: Apache-2.0
-- tables.lua N: tables of tables, strings and closures; prints a checksum.
local n = tonumber(arg[1])
local seed = 42
local function random(below) seed = (seed * 1103515245 + 12345) % 2147483648; return seed % below + 1 end
local list, names = {}, {}
for i = 1, n do
  local item = { id = i, tags = { "t" .. i % 97, "u" .. i % 31 }, next = list[random(#list + 1)] }
  list[#list + 1] = item
  names["name" .. i] = function() return item.id end
  if i % 20000 == 0 then
    local kept = {}
    for k = 1, #list, 2 do kept[#kept + 1] = list[k] end
    list = kept
  end
end
table.sort(list, function(a, b) return a.tags[1] .. a.id < b.tags[1] .. b.id end)
local parts, sum = {}, 0
for i, item in ipairs(list) do parts[#parts + 1] = item.tags[2] .. item.id end
for _, f in pairs(names) do sum = sum + f() end
print(#list, #table.concat(parts, ","), string.format("%d", sum))
