// SPDX-License-Identifier: Apache-2.0
//! Language runtimes: programs whose memory manager is not malloc's, and takes settings (docs/decisions/0041).
//!
//! - here: which runtimes there are, and how each takes its settings
//! - `found`: what shows that a program is of a runtime, and in which version
//! - `go_build`, `jdk`: versions
//! - `version`: ranges of versions
//! - `settings`: what a candidate sets
//! - `limit`: values that depend on the memory limit
//!
//! [`crate::runtime_start`] is about one program's start.
//!
//! Signs that a program is of a runtime. A name alone never is one.
//!
//! Values that depend on the memory limit of the control group: `{memory_limit 90%}` is replaced by that share of it in
//! bytes, `{memory_limit_mib 75%}` by that in MiB.

mod version;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use version::{GO_BUILD_BYTES, VersionRange, go_version, is_version, with_version};

/// A language runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// HotSpot: the `java` launcher, the tools of the JDK, programs with a JVM inside.
    Jvm,
    /// Programs that the Go compiler made.
    Go,
    /// Node.js.
    Node,
    /// CPython.
    Cpython,
    /// CRuby.
    Ruby,
    /// PHP.
    Php,
    /// Erlang's virtual machine.
    Beam,
    /// Programs of OCaml.
    Ocaml,
    /// .NET's CoreCLR.
    Dotnet,
}

/// Way in which a setting of the environment reaches a runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The runtime reads it by getenv: `libimas-settings.so` answers, and the environment shows nothing.
    Hidden,
    /// The runtime reads the array of the environment itself: the variable stays there, and children
    /// inherit it.
    Open,
}

impl Runtime {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Jvm,
        Self::Go,
        Self::Node,
        Self::Cpython,
        Self::Ruby,
        Self::Php,
        Self::Beam,
        Self::Ocaml,
        Self::Dotnet,
    ];

    /// Identifier, as the catalogue has it.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Jvm => "jvm",
            Self::Go => "go",
            Self::Node => "node",
            Self::Cpython => "cpython",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Beam => "beam",
            Self::Ocaml => "ocaml",
            Self::Dotnet => "dotnet",
        }
    }

    /// The runtime of the candidate with that name: the catalogue names settings `RUNTIME:SETTING`.
    #[must_use]
    pub fn of_candidate(name: &str) -> Option<Self> {
        let (prefix, _) = name.split_once(':')?;
        Self::ALL.into_iter().find(|one| one.id() == prefix)
    }

    /// Name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Jvm => "the JVM",
            Self::Go => "Go",
            Self::Node => "Node.js",
            Self::Cpython => "CPython",
            Self::Ruby => "Ruby",
            Self::Php => "PHP",
            Self::Beam => "the BEAM",
            Self::Ocaml => "OCaml",
            Self::Dotnet => ".NET",
        }
    }

    /// How its variables reach it.
    #[must_use]
    pub fn delivery(self) -> Delivery {
        match self {
            Self::Go | Self::Dotnet => Delivery::Open,
            _ => Delivery::Hidden,
        }
    }

    /// Whether it may ask for a variable more than once at its start. Of all others the first question is the
    /// runtime's own, and every later one is the program's.
    #[must_use]
    pub fn asks_again(self) -> bool {
        self == Self::Cpython
    }

    /// Whether `libimas-preload.so` can give its settings: the runtime asks for them by getenv, and what its
    /// user has set shows in the environment and the arguments, in whatever version.
    #[must_use]
    pub fn is_placed(self) -> bool {
        matches!(self, Self::Node | Self::Cpython | Self::Ruby | Self::Php | Self::Ocaml)
    }

    /// Whether nothing of ours is loaded into its programs under settings alone. Most programs of Go are
    /// static, and the others read the environment themselves.
    #[must_use]
    pub fn starts_bare(self) -> bool {
        self == Self::Go
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// Sign between the options of a variable that has a list of them; `None` for a variable with one value.
#[must_use]
pub fn list_sign(variable: &str) -> Option<char> {
    match variable {
        "NODE_OPTIONS" | "JAVA_TOOL_OPTIONS" | "JDK_JAVA_OPTIONS" | "_JAVA_OPTIONS" | "ERL_FLAGS"
        | "ERL_AFLAGS" | "ERL_ZFLAGS" | "RUBYOPT" => Some(' '),
        "OCAMLRUNPARAM" | "GODEBUG" => Some(','),
        "GLIBC_TUNABLES" => Some(':'),
        _ => None,
    }
}

/// Settings of a candidate in a runtime, beside its environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeSettings {
    /// The runtime. No program of another gets the candidate.
    pub runtime: Runtime,
    /// The versions of the runtime that have these settings.
    pub versions: VersionRange,
    /// Arguments that are put behind the program's name.
    pub arguments: Vec<String>,
    /// Beginnings of options, and variables: where the user gives one, the candidate is not offered.
    pub yields_to: Vec<String>,
    /// Nothing of ours is loaded into the program, and the variables stay in its environment. True only of a
    /// candidate that was fitted to a program (`runtime_start`).
    pub is_bare: bool,
}

impl RuntimeSettings {
    /// No settings of the runtime yet, for all its versions.
    #[must_use]
    pub fn of(runtime: Runtime) -> Self {
        let versions = VersionRange::default();
        Self { runtime, versions, arguments: vec![], yields_to: vec![], is_bare: false }
    }

    /// Checks the settings, with these variables beside them.
    ///
    /// # Errors
    /// The fault, as a clause for people.
    pub fn check<'a>(&'a self, values: impl Iterator<Item = &'a String>) -> Result<(), String> {
        let mut texts = self.arguments.iter().chain(values);
        match texts.find(|text| !is_right_limit(text) || text.contains('\0')) {
            Some(text) => Err(format!("'{text}' has no share of the memory limit that can be read")),
            None if !self.arguments.is_empty() && self.runtime != Runtime::Jvm => {
                Err("'arguments' are for the JVM".to_owned())
            }
            None => Ok(()),
        }
    }
}

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
    /// Sign that showed it, for people.
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

const BEGIN: &str = "{memory_limit";
const MIB: u64 = 1 << 20;

/// Whether the text names the limit.
#[must_use]
pub fn names_limit(text: &str) -> bool {
    text.contains(BEGIN)
}

/// Whether each place of the text that names the limit can be read.
#[must_use]
pub fn is_right_limit(text: &str) -> bool {
    filled_limit(text, u64::MAX).is_some()
}

/// The text with the limit in the places that name it; `None` where one of them cannot be read.
#[must_use]
pub fn filled_limit(text: &str, limit_bytes: u64) -> Option<String> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (inside, behind) = after.split_once('}')?;
        let (unit, share) = match inside.strip_prefix("_mib") {
            Some(share) => (MIB, share),
            None => (1, inside),
        };
        let percent = match share.trim() {
            "" => 100,
            share => share.strip_suffix('%')?.parse().ok().filter(|percent| (1..=100).contains(percent))?,
        };
        whole.push_str(before);
        whole.push_str(&(limit_bytes / 100 * percent / unit).to_string());
        rest = behind;
    }
    whole.push_str(rest);
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_limit_takes_the_place_of_its_name() {
        let of = |text| filled_limit(text, 1_000 * MIB);
        assert_eq!(of("{memory_limit}").unwrap(), (10 * MIB * 100).to_string());
        assert_eq!(of("--max={memory_limit_mib 75%},x").unwrap(), "--max=750,x");
        assert_eq!(of("plain").unwrap(), "plain");
        for bad in ["{memory_limit", "{memory_limit 0%}", "{memory_limit 101%}", "{memory_limitx}"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
