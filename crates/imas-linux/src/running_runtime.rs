// SPDX-License-Identifier: Apache-2.0
//! The language runtime of a running process, and what the process was given. Nothing is attached to.

use std::ffi::OsString;
use std::io::{self, Error};
use std::path::{Path, PathBuf};

use crate::catalogue::CatalogueCandidate;
use crate::elf::ElfImage;
use crate::foreign_process::{self, Finding, ForeignFile};
use crate::jvm_heap::JvmHeap;
use crate::program_file::ProgramFile;
use crate::running::Running;
use crate::runtime::{FoundRuntime, Runtime, only, with_version};
use crate::runtime_start::{Fitted, StartOfProgram, fitted, takes};
use crate::serving::RealCandidates;
use crate::variables::Variables;
use crate::{mapping_text, process};

/// Runtime of a process.
#[derive(Debug, Clone)]
pub struct RunningRuntime {
    /// The runtime.
    pub found: FoundRuntime,
    file: PathBuf,
    unfit: Option<String>,
    words: Vec<OsString>,
    environment: Variables,
}

impl RunningRuntime {
    /// The runtime of the process. None where none shows in its executable, or more than one.
    #[must_use]
    pub fn of(running: &Running) -> Option<Self> {
        let pid = running.pid;
        let file = running.program.path.clone();
        let text = foreign_process::find_out(pid, Finding::Runtime, text_of).ok()?;
        let (found, unfit) = serde_json::from_slice(&text).ok()?;
        let found: FoundRuntime = found;
        let words = process::arguments(pid).ok()?.into_iter().skip(1).collect();
        Some(Self { found, file, unfit, words, environment: running.all_variables() })
    }

    /// The candidate as a start of the same command would get it.
    ///
    /// # Errors
    /// Why it does not, as a clause for people: the user has set something already, for example.
    pub fn fitted(&self, candidate: &CatalogueCandidate) -> Result<Fitted, String> {
        fitted(candidate, &self.start(false))
    }

    /// The candidate as a start of the same command gets it whose words cannot be added to: a script makes the start. The
    /// runtime is started once with the settings.
    ///
    /// # Errors
    /// Why it does not get it, as a clause for people.
    pub fn fitted_behind_a_script(&self, candidate: &CatalogueCandidate) -> Result<Fitted, String> {
        let start = self.start(true);
        let fitted = fitted(candidate, &start)?;
        takes(&fitted, &start).map(|()| fitted)
    }

    /// The most that the heap may take, by the words of the command and the environment: of V8's old space, of all that Go
    /// has mapped, of .NET's and of the JVM's heap, whose own counters know it better.
    #[must_use]
    pub fn heap_limit(&self) -> Option<HeapLimit> {
        let variable = |name: &str| self.environment.get(name).map(|value| value.to_string_lossy());
        let given = self.words.iter().map(|word| word.to_string_lossy());
        let by_words = |variables: &[&str]| {
            let options = variables.iter().filter_map(|name| variable(name));
            let options: Vec<String> = options
                .flat_map(|value| value.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
                .collect();
            options.into_iter().chain(given.clone().map(std::borrow::Cow::into_owned)).collect::<Vec<_>>()
        };
        HeapLimit::of(self.found.runtime, by_words, |name| variable(name).map(std::borrow::Cow::into_owned))
    }

    fn start(&self, is_by_script: bool) -> StartOfProgram<'_> {
        StartOfProgram {
            found: std::slice::from_ref(&self.found),
            file: &self.file,
            words: &self.words,
            // Its files may be another user's, in another file system: a start of the command looks at them.
            has_files: false,
            is_by_script,
            unfit: self.unfit.as_deref(),
            environment: &self.environment,
            memory_limit: None,
        }
    }
}

/// Most bytes that the heap of a runtime may take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeapLimit {
    /// Number of bytes; 0 where the setting is a share.
    pub bytes: u64,
    /// The setting.
    pub by: String,
}

/// Settings of a JVM's heap.
const JVM_SETTINGS: [&str; 3] = ["-Xmx", "-XX:MaxHeapSize", "-XX:MaxRAMPercentage"];
const OLD_SPACE: &str = "--max-old-space-size";

impl HeapLimit {
    /// `words`: values of the named variables, then the command's words; the last one counts.
    fn of(
        runtime: Runtime,
        words: impl Fn(&[&str]) -> Vec<String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Option<Self> {
        let found = |bytes, by: &str| Some(Self { bytes, by: by.to_owned() });
        match runtime {
            Runtime::Jvm => {
                let words = words(&["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"]);
                // What stands behind the archive is the program's own.
                let own = words.iter().take_while(|word| *word != "-jar").cloned();
                let last = variable("_JAVA_OPTIONS").unwrap_or_default();
                let words: Vec<String> = own.chain(last.split_whitespace().map(str::to_owned)).collect();
                let (name, value) = words.iter().rev().find_map(|word| {
                    JVM_SETTINGS.into_iter().find_map(|name| Some((name, word.strip_prefix(name)?)))
                })?;
                let is_share = name == "-XX:MaxRAMPercentage";
                let bytes = if is_share { None } else { jvm_bytes(value.trim_start_matches('=')) };
                found(bytes.unwrap_or(0), name)
            }
            Runtime::Node => {
                let words = words(&["NODE_OPTIONS"]);
                let value = |word: &String| {
                    word.replace('_', "-").strip_prefix(OLD_SPACE)?.strip_prefix('=')?.parse::<u64>().ok()
                };
                found(words.iter().rev().find_map(value)?.checked_mul(1 << 20)?, OLD_SPACE)
            }
            Runtime::Go => found(go_bytes(&variable("GOMEMLIMIT")?)?, "GOMEMLIMIT"),
            Runtime::Dotnet => {
                let value =
                    variable("DOTNET_GCHeapHardLimit").or_else(|| variable("COMPlus_GCHeapHardLimit"))?;
                found(u64::from_str_radix(value.trim_start_matches("0x"), 16).ok()?, "DOTNET_GCHeapHardLimit")
            }
            _ => None,
        }
    }
}

/// Bytes as the JVM reads them: `512m`.
fn jvm_bytes(text: &str) -> Option<u64> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let shift = match text[end..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    text[..end].parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Bytes as Go reads them: `512MiB`; `off` is none.
fn go_bytes(text: &str) -> Option<u64> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..end].parse().ok()?;
    let shift = match &text[end..] {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// The name of the candidate that the process is on: what its files show; else, where it was given settings of its
/// runtime, the only one of that runtime that it can be. `runtime` is asked for then alone.
#[must_use]
pub fn name_of_candidate<'a>(
    running: &Running,
    among: &'a RealCandidates,
    runtime: impl FnOnce() -> Option<Runtime>,
) -> Option<&'a str> {
    running.name_of_candidate(among).or_else(|| {
        let runtime = running.is_given_settings().then(runtime).flatten()?;
        running.name_of_settings(runtime, among)
    })
}

/// The runtime of a process, as [`RunningRuntime::of`] reads it. The executable is read through the process, by this very
/// one: a container has a file system of its own.
pub(crate) fn text_of(pid: u32) -> io::Result<Vec<u8>> {
    let none = || Error::from(rustix::io::Errno::NOENT);
    let path = process::executable_path(pid).map_err(|_| none())?;
    let file = ProgramFile::open(Path::new(&format!("/proc/{}/exe", mapping_text::living_thread(pid))))?;
    let elf = ElfImage::of(file.file(), &path).map_err(|_| none())?;
    let found = only(&elf.runtimes).ok().flatten().ok_or_else(none)?.clone();
    Ok(serde_json::to_vec(&(with_version(found, &path), elf.unfit().map(|unfit| unfit.why())))?)
}

/// Heap of a JVM. None where it keeps no counters, or its collector has no two generations.
#[must_use]
pub fn jvm_heap(pid: u32) -> Option<JvmHeap> {
    JvmHeap::from_bytes(&foreign_process::read(pid, ForeignFile::JvmCounters).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_a_heap_is_in_the_words_or_the_environment() {
        let of = |runtime, words: &str, value: Option<&str>| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            HeapLimit::of(runtime, |_| words.clone(), |_| value.map(str::to_owned))
                .map(|one| (one.bytes, one.by))
        };
        let mib = |number: u64, by: &str| Some((number << 20, by.to_owned()));
        assert_eq!(
            of(Runtime::Node, "--max-old-space-size=10 --max_old_space_size=20 a.js", None),
            mib(20, OLD_SPACE)
        );
        assert_eq!(of(Runtime::Node, "a.js --max-old-space-size=x", None), None);
        assert_eq!(of(Runtime::Go, "", Some("512MiB")), mib(512, "GOMEMLIMIT"));
        assert_eq!(of(Runtime::Go, "", Some("1GiB")), mib(1024, "GOMEMLIMIT"));
        for none in ["off", "", "1MB", "99999999999TiB", "-1"] {
            assert_eq!(of(Runtime::Go, "", Some(none)), None, "{none}");
        }
        assert_eq!(of(Runtime::Dotnet, "", Some("0x10000000")), mib(256, "DOTNET_GCHeapHardLimit"));
        assert_eq!(of(Runtime::Jvm, "-Xms1g -Xmx2g -jar a.jar", None), mib(2048, "-Xmx"));
        assert_eq!(of(Runtime::Jvm, "-XX:MaxRAMPercentage=80.0", None), mib(0, "-XX:MaxRAMPercentage"));
        assert_eq!(of(Runtime::Jvm, "-XX:MaxRAMPercentage=75", None), mib(0, "-XX:MaxRAMPercentage"));
        assert_eq!(
            of(Runtime::Jvm, "-Xmx2g -jar a.jar -Xmx8g", None),
            mib(2048, "-Xmx"),
            "the program's own"
        );
        let last = Some("-Dx=1 -Xmx1g");
        assert_eq!(of(Runtime::Jvm, "-Xmx2g -jar a.jar", last), mib(1024, "-Xmx"), "_JAVA_OPTIONS wins");
        assert_eq!(of(Runtime::Jvm, "-jar a.jar", None), None);
    }
}
