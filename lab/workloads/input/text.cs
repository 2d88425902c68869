// SPDX-License-Identifier: Apache-2.0
// text FILE: counts words by a regular expression, swaps the last words of sentences, looks at each paragraph.
using System;
using System.IO;
using System.Linq;
using System.Text.RegularExpressions;

var text = File.ReadAllText(args[0]);
var words = new Regex(@"\b\w+(?:ai|ou|er)\b", RegexOptions.Compiled).Matches(text).Select(match => match.Value.ToLowerInvariant());
var counts = words.GroupBy(word => word).Select(group => (Word: group.Key, Count: group.Count()));
foreach (var (word, count) in counts.OrderByDescending(one => one.Count).ThenBy(one => one.Word, StringComparer.Ordinal).Take(20))
    Console.WriteLine($"{count} {word}");
var swapped = Regex.Replace(text, @"(\w+)\s(\w+)\.", match => $"{match.Groups[2].Value} {match.Groups[1].Value}.");
Console.WriteLine(swapped.Where(char.IsUpper).Count());
var paragraphs = swapped.Split("\n\n").Select(paragraph => paragraph.Split(new[] { ' ', '\n' }).Distinct().Order(StringComparer.Ordinal).ToArray());
var longest = paragraphs.ToLookup(paragraph => paragraph.Length).MaxBy(group => group.Key)!;
Console.WriteLine(string.Join(" ", longest.First()));
