// SPDX-License-Identifier: Apache-2.0
// records FILE: reads a table, groups and sorts its records by several keys, twelve times with other keys.
using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.Linq;

for (int round = 0; round < 12; round++)
{
    var groups = new Dictionary<(string, string), List<Sale>>();
    foreach (var line in File.ReadLines(args[0]).Skip(1))
    {
        var cell = line.Split(',');
        var sale = new Sale(int.Parse(cell[0]), cell[1], cell[2], int.Parse(cell[3]), double.Parse(cell[4], CultureInfo.InvariantCulture), cell[5]);
        var key = (sale.Town, round % 2 == 0 ? sale.Item : sale.Day);
        if (!groups.TryGetValue(key, out var group)) groups[key] = group = new List<Sale>();
        group.Add(sale);
    }
    foreach (var group in groups.Values)
        group.Sort((a, b) => a.Price != b.Price ? a.Price.CompareTo(b.Price) : a.Id.CompareTo(b.Id));
    var first = groups.Values.OrderByDescending(group => group.Sum(sale => sale.Amount)).ThenBy(group => group[0].Id).Take(3);
    foreach (var group in first) Console.WriteLine($"{groups.Count} {group.Count} {group[0]}");
}

record Sale(int Id, string Town, string Item, int Amount, double Price, string Day);
