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

mod found;
mod go_build;
mod jdk;
pub mod limit;
mod settings;
mod version;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use found::{FoundRuntime, Marker, RuntimeEntry, only};
pub use go_build::{GO_BUILD_BYTES, go_version};
pub use jdk::with_version;
pub use settings::RuntimeSettings;
pub use version::{VersionRange, is_version};

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
