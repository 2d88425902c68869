// SPDX-License-Identifier: Apache-2.0
// pack FILE...: compresses files in pieces, quickly and well, unpacks each piece again and prints a sum of all.
using System;
using System.IO;
using System.IO.Compression;
using System.Linq;
using System.Security.Cryptography;

const int Piece = 1 << 18;
using var all = IncrementalHash.CreateHash(HashAlgorithmName.SHA256);
long packedBytes = 0;
foreach (var level in new[] { CompressionLevel.Fastest, CompressionLevel.Optimal })
    foreach (var data in args.Select(File.ReadAllBytes))
        for (int at = 0; at < data.Length; at += Piece)
        {
            var piece = data.AsSpan(at, Math.Min(Piece, data.Length - at)).ToArray();
            var packed = new MemoryStream();
            using (var gzip = new GZipStream(packed, level)) gzip.Write(piece);
            var again = new MemoryStream();
            using (var gzip = new GZipStream(new MemoryStream(packed.ToArray()), CompressionMode.Decompress)) gzip.CopyTo(again);
            if (!again.ToArray().AsSpan().SequenceEqual(piece)) throw new InvalidDataException($"other bytes at {at}");
            packedBytes += packed.ToArray().Length;
            all.AppendData(SHA256.HashData(packed.ToArray()));
        }
Console.WriteLine($"{packedBytes} {Convert.ToHexString(all.GetHashAndReset())}");
