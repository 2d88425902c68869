// SPDX-License-Identifier: Apache-2.0
// arrays: a cache of large arrays of other sizes each time, which is full, then small, then full of larger ones.
// They are on the heap of large objects, which the runtime does not compact on its own.
using System;

const int Most = 250;
var random = new Random(1);
var cache = new byte[Most][];
long sum = 0;
foreach (var (slots, least, turns) in new[] { (Most, 90_000, 16_000), (30, 90_000, 4000), (Most / 2, 300_000, 8000) })
{
    Array.Clear(cache, slots, Most - slots);
    for (int turn = 0; turn < turns; turn++)
    {
        var array = new byte[random.Next(least, least * 4)];
        array[turn] = 1;
        array[^1] = (byte)turn;
        int at = random.Next(slots);
        sum += cache[at]?[^1] ?? 0;
        cache[at] = array;
    }
    Console.WriteLine($"{slots} {sum}");
}
