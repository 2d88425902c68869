// SPDX-License-Identifier: Apache-2.0
// json FILE: reads sales as objects, adds up by town, changes them and writes them as text again, eight times.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text.Json;

var options = new JsonSerializerOptions(JsonSerializerDefaults.Web);
var text = File.ReadAllText(args[0]);
for (int round = 0; round < 8; round++)
{
    var sales = JsonSerializer.Deserialize<List<Sale>>(text, options)!;
    foreach (var town in sales.GroupBy(sale => sale.Town).OrderBy(town => town.Key, StringComparer.Ordinal))
        Console.WriteLine($"{town.Key} {town.Sum(sale => sale.Amount * sale.Price):F2}");
    text = JsonSerializer.Serialize(sales.Select(sale => sale with { Amount = sale.Amount % 500 + 1 }), options);
}
Console.WriteLine(text.Length);

record Sale(int Id, string Town, string Item, int Amount, double Price, string Day, string Note);
