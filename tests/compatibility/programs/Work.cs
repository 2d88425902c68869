// SPDX-License-Identifier: Apache-2.0
using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;

class Work {
    static int Length(string text) { return text.Length; }

    static void Main() {
        var sums = new long[4];
        var threads = Enumerable.Range(0, 4).Select(at => new Thread(() => {
            var kept = new List<string>();
            for (int i = 0; i < 40000; i++) kept.Add(new string('x', i % 40));
            sums[at] = kept.Sum(text => (long)text.Length);
        })).ToList();
        threads.ForEach(thread => thread.Start());
        threads.ForEach(thread => thread.Join());
        int caught = 0;
        for (int i = 0; i < 500; i++) try { Length(null); } catch (NullReferenceException) { caught++; }
        GC.Collect();
        Console.WriteLine(string.Join(" ", sums) + " " + caught);
    }
}
