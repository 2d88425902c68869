// SPDX-License-Identifier: Apache-2.0
// Server PORT: a web server of .NET's base library: JSON of a size that the path names, a cache that ages.
// runtimeconfig: "System.GC.Server": true
using System.Collections.Generic;
using System.Linq;
using System.Net;
using System.Text.Json;
using System.Threading.Tasks;

const int Kept = 100;
var cache = new Queue<byte[]>();
var listener = new HttpListener();
listener.Prefixes.Add($"http://127.0.0.1:{args[0]}/");
listener.Start();
while (true)
{
    var context = await listener.GetContextAsync();
    _ = Task.Run(() => Answer(context));
}

async Task Answer(HttpListenerContext context)
{
    var parts = context.Request.Url!.AbsolutePath.Split('/');
    int count = parts.Length > 3 ? int.Parse(parts[3]) : 1;
    var items = Enumerable.Range(0, count).Select(n => new Item(n, $"item {n}", new[] { $"a{n % 7}", $"b{n % 11}" }));
    var bytes = JsonSerializer.SerializeToUtf8Bytes(items);
    lock (cache)
    {
        cache.Enqueue(bytes);
        if (cache.Count > Kept) cache.Dequeue();
    }
    context.Response.ContentLength64 = bytes.Length;
    await context.Response.OutputStream.WriteAsync(bytes);
    context.Response.Close();
}

record Item(int Id, string Name, string[] Tags);
