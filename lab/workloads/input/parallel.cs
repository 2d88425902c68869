// SPDX-License-Identifier: Apache-2.0
// parallel: builds and walks trees of small objects on all processors, with the collector of servers.
// runtimeconfig: "System.GC.Server": true
using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading.Tasks;

var sums = new long[160];
Parallel.For(0, sums.Length, part =>
{
    var random = new Random(part);
    var tree = new SortedDictionary<string, List<int>>(StringComparer.Ordinal);
    for (int n = 0; n < 30000; n++)
    {
        var key = $"key {random.Next(4000)}";
        if (!tree.TryGetValue(key, out var list)) tree[key] = list = new List<int>();
        list.Add(n);
    }
    sums[part] = tree.Sum(one => (long)one.Key.Length * one.Value.Sum());
});
Console.WriteLine(string.Join(" ", sums));
