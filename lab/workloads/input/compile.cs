// SPDX-License-Identifier: Apache-2.0
// compile FILE OUT: compiles C# by Roslyn, as the command line `csc -optimize -deterministic` does.
using System;
using System.IO;
using System.Linq;
using Microsoft.CodeAnalysis;
using Microsoft.CodeAnalysis.CSharp;

var library = Path.GetDirectoryName(typeof(object).Assembly.Location)!;
var references = Directory.GetFiles(library, "System*.dll").Order(StringComparer.Ordinal).Select(file => MetadataReference.CreateFromFile(file));
var options = new CSharpCompilationOptions(OutputKind.DynamicallyLinkedLibrary, optimizationLevel: OptimizationLevel.Release,
    nullableContextOptions: NullableContextOptions.Enable, deterministic: true);
var tree = CSharpSyntaxTree.ParseText(File.ReadAllText(args[0]), path: "many.cs");
var compilation = CSharpCompilation.Create("many", new[] { tree }, references, options);
using var file = File.Create(args[1]);
var result = compilation.Emit(file);
foreach (var diagnostic in result.Diagnostics.Take(9)) Console.WriteLine(diagnostic);
return result.Success ? 0 : 1;
