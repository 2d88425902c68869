// SPDX-License-Identifier: Apache-2.0
//! What shows that a program is of a runtime. A name alone never does.

use serde::{Deserialize, Serialize};

use super::Runtime;

/// How a program enters its runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeEntry {
    /// The program is the runtime, or starts it with its own arguments.
    #[default]
    Own,
    /// A tool of the JDK, such as javac: options of the JVM have `-J` before them.
    Tool,
    /// The program has the runtime inside and arguments of its own.
    Inside,
}

/// The runtime of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundRuntime {
    /// The runtime.
    pub runtime: Runtime,
    /// What showed it, for people.
    pub by: String,
    /// Its version, where a file shows it; with `+` behind it, the oldest that it may be.
    pub version: Option<String>,
    /// How the program enters it.
    #[serde(default)]
    pub entry: RuntimeEntry,
}

/// A name among the symbols or the texts of a file that only programs of one runtime have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The whole name.
    pub name: &'static str,
    /// The runtime whose programs have it.
    pub runtime: Runtime,
    /// How such a program enters the runtime.
    pub entry: RuntimeEntry,
}

const fn marker(name: &'static str, runtime: Runtime, entry: RuntimeEntry) -> Marker {
    Marker { name, runtime, entry }
}

impl Marker {
    /// Symbols that a program of the runtime defines, or has from a library of the runtime.
    pub const SYMBOLS: [Self; 10] = [
        marker("JLI_Launch", Runtime::Jvm, RuntimeEntry::Own),
        marker("JNI_CreateJavaVM", Runtime::Jvm, RuntimeEntry::Inside),
        marker("_ZN4node5StartEiPPc", Runtime::Node, RuntimeEntry::Own),
        marker("Py_BytesMain", Runtime::Cpython, RuntimeEntry::Own),
        marker("ruby_run_node", Runtime::Ruby, RuntimeEntry::Own),
        marker("php_module_startup", Runtime::Php, RuntimeEntry::Own),
        marker("enif_make_atom", Runtime::Beam, RuntimeEntry::Inside),
        marker("caml_startup", Runtime::Ocaml, RuntimeEntry::Own),
        marker("caml_main", Runtime::Ocaml, RuntimeEntry::Own),
        marker("DotNetRuntimeInfo", Runtime::Dotnet, RuntimeEntry::Own),
    ];

    /// Texts of small launchers, which open their runtime later.
    pub const TEXTS: [Self; 2] = [
        marker("ERL_ZFLAGS", Runtime::Beam, RuntimeEntry::Own),
        marker("hostfxr_main_startupinfo", Runtime::Dotnet, RuntimeEntry::Own),
    ];
}

/// The runtime, if there is exactly one. With two of them in one process it is not known whose memory a
/// setting would change.
///
/// # Errors
/// The reason, for people, if there are several.
pub fn only(found: &[FoundRuntime]) -> Result<Option<&FoundRuntime>, String> {
    match found {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => {
            let names: Vec<_> =
                several.iter().map(|one| format!("{} ({})", one.runtime.name(), one.by)).collect();
            Err(format!("it has several runtimes: {}", names.join(", ")))
        }
    }
}
