// SPDX-License-Identifier: Apache-2.0
// xml FILE: reads sales, asks for some of each town by XPath, and writes a document with the sales of each item.
using System;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Xml.Linq;
using System.Xml.XPath;

var document = XDocument.Load(args[0]);
foreach (var town in document.Root!.Elements().Select(sale => (string)sale.Attribute("town")!).Distinct().Order(StringComparer.Ordinal))
{
    var large = document.XPathSelectElements($"/sales/sale[@town='{town}' and amount > 400 and contains(note, 'a')]");
    Console.WriteLine($"{town} {large.Count()} {large.Sum(sale => decimal.Parse(sale.Element("price")!.Value, CultureInfo.InvariantCulture))}");
}
var items = document.Root.Elements().GroupBy(sale => sale.Element("item")!.Value).OrderBy(item => item.Key, StringComparer.Ordinal);
var byItem = new XElement("items", items.Select(item => new XElement("item", new XAttribute("name", item.Key), item)));
var text = new StringWriter();
byItem.Save(text);
Console.WriteLine(text.ToString().Length);
