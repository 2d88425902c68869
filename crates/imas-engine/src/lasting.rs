// SPDX-License-Identifier: Apache-2.0
//! A candidate for something that lasts: a service, a container, the pods of a workload. Settings of a runtime are
//! variables there; nothing is put behind the name of a program.
//! Last, the licences that come along with libraries that are taken elsewhere.

use std::path::Path;

use anyhow::Result;
use imas_cli::message::Hinted;
use imas_core::printable::counted;
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};
use imas_linux::environment::{
    Injection, Libraries, Mode, Reach, UnusablePath, Variables, has_hidden_settings,
};
use imas_linux::runtime::{
    self, Delivery, FoundRuntime, Runtime, RuntimeEntry, RuntimeSettings, VersionRange,
};
use imas_linux::runtime_start::{StartOfProgram, fitted};
use imas_linux::{elf, host};

use crate::context::Context;
use crate::inline_candidate::{TRIMS, inline_candidate, is_typed};

/// The candidate of that name, from the catalogue or with settings (`jemalloc?narenas:1`), if it can be used
/// here and changes anything.
///
/// # Errors
/// If there is no such candidate, if it cannot be used here, or if it is `system`.
pub fn usable(context: &Context, name: &str) -> Result<CatalogueCandidate> {
    let candidate = match is_typed(name) {
        true => inline_candidate(name, context)?,
        false => context.candidate(name)?.clone(),
    };
    if let Some(obstacle) = context.obstacle(&candidate, None) {
        return Err(Hinted::error(
            format!("{name} cannot be used here: {obstacle}"),
            "'imas list' shows those that can",
        ));
    }
    if candidate.is_system() {
        return Err(Hinted::error(
            "system is the program as it is: there is nothing to set",
            "'imas unapply UNIT' takes away what 'imas apply' wrote",
        ));
    }
    if name.strip_suffix(TRIMS) == Some(SYSTEM) {
        return Err(Hinted::error(
            format!("{name} is the program as it is, trimmed from outside: there is nothing to set"),
            "'imas trim UNIT --every 1m --write' for a service, 'imas kube daemonset --trim' for pods, \
             'imas run --trim -- COMMAND' for a command",
        ));
    }
    Ok(candidate)
}

/// The variables that differ from those inherited when a program is started in production under the
/// candidate, in the order of their names. `reach`: the processes that they are for. Which of the processes of a service or a container
/// holds the memory is not known, so that is all of them, but for settings of a runtime (docs/decisions/0051).
///
/// # Errors
/// If one of the libraries lies at a path that `LD_PRELOAD` cannot express.
pub fn changes(
    libraries: &Libraries,
    candidate: &CatalogueCandidate,
    reach: Reach,
    inherited: &Variables,
) -> Result<Vec<(String, String)>, UnusablePath> {
    let injection = Injection { candidate, mode: Mode::Production, reach, page: None };
    let wanted = injection.variables(inherited, libraries)?;
    let changed = wanted.iter().filter(|(name, value)| inherited.get(name) != Some(value));
    let text = |word: &std::ffi::OsString| word.to_string_lossy().into_owned();
    let mut changed: Vec<_> = changed.map(|(name, value)| (text(name), text(value))).collect();
    changed.sort();
    Ok(changed)
}

/// The candidate with the paths of a folder that will be found at `at`.
#[must_use]
pub fn moved(candidate: &CatalogueCandidate, at: &Path) -> CatalogueCandidate {
    let library = candidate.library.as_ref().and_then(|library| Some(at.join(library.file_name()?)));
    CatalogueCandidate { library, ..candidate.clone() }
}

/// Files that have to be there for those variables to work: the guard, what answers a runtime, the allocator, and what the
/// distribution brings. None where nothing is loaded.
pub fn files<'a>(context: &'a Context, candidate: &'a CatalogueCandidate) -> impl Iterator<Item = &'a Path> {
    let ours = (!candidate.is_bare()).then_some(context.libraries.guard.as_path());
    let answers = has_hidden_settings(candidate).then_some(context.libraries.settings.as_path());
    [ours, answers, candidate.library.as_deref(), candidate.needs.as_deref()].into_iter().flatten()
}

/// Oldest C library for which the libraries of IMAS are built and tried (docs/install.md).
const OLDEST: (u16, u16) = (2, 17);
/// The variable of glibc's settings, and the first versions that know it and its huge pages. An older one ignores it.
const TUNABLES: (&str, (u16, u16)) = ("GLIBC_TUNABLES", (2, 26));
const HUGE_PAGES: (&str, (u16, u16)) = ("glibc.malloc.hugetlb=", (2, 35));

/// Oldest C library with which these candidates and these files of theirs work, such as `glibc 2.17`, after libstdc++ if
/// they need that; this machine's where that cannot be read.
pub fn oldest_libc<'a>(
    candidates: impl IntoIterator<Item = &'a CatalogueCandidate>,
    files: impl IntoIterator<Item = &'a Path>,
) -> String {
    let files: Vec<&Path> = files.into_iter().collect();
    let asked: Result<Vec<_>, _> = files.iter().map(|file| elf::glibc_asked(file)).collect();
    let settings = candidates.into_iter().filter_map(|candidate| {
        let value = candidate.environment.get(TUNABLES.0)?;
        Some(if value.contains(HUGE_PAGES.0) { HUGE_PAGES.1 } else { TUNABLES.1 })
    });
    let libc = match asked {
        Ok(asked) => {
            let (major, minor) = asked.into_iter().flatten().chain(settings).fold(OLDEST, Ord::max);
            format!("glibc {major}.{minor}")
        }
        Err(_) => host::libc_version(),
    };
    let is_cxx = files.iter().any(|file| elf::asks_for_libstdcxx(file).unwrap_or(false));
    if is_cxx { format!("libstdc++ and {libc}") } else { libc }
}

/// An error if the candidate has huge pages of its own, which no variable sets.
fn can_be_variables(candidate: &CatalogueCandidate) -> Result<()> {
    match candidate.huge_pages {
        None => Ok(()),
        Some(_) => Err(Hinted::error(
            format!("{}: no variable sets the huge pages of a program", candidate.name),
            format!(
                "start it with 'imas run --candidate {} -- ...'; 'imas apply' sets MemoryTHP=",
                candidate.name
            ),
        )),
    }
}

/// An error if the candidate's library belongs to a distribution, and cannot be taken along, or no variable sets it.
///
/// # Errors
/// If it does.
pub fn can_be_taken(candidate: &CatalogueCandidate) -> Result<()> {
    can_be_variables(candidate)?;
    if candidate.needs.is_none() {
        return Ok(());
    }
    let name = &candidate.name;
    Err(Hinted::error(
        format!("{name}: its library belongs to the distribution and cannot be taken along"),
        format!("name the allocator that IMAS builds: '{}'", name.trim_start_matches("distro-")),
    ))
}

// A candidate that is settings of a language runtime, for something that lasts: a unit, an image, a pod. There the
// settings are variables; nothing is put behind the name of a program.

/// The variable of the JVM for settings that are arguments elsewhere.
const OF_JVM: &str = "JAVA_TOOL_OPTIONS";

/// The candidate for a program whose runtime alone is known, with the variables that it has already. A candidate
/// without a runtime is what it was.
///
/// # Errors
/// If a variable has a value already, or would need to know the memory limit.
pub fn for_any(candidate: &CatalogueCandidate, environment: &Variables) -> Result<CatalogueCandidate> {
    can_be_variables(candidate)?;
    if candidate.runtime.is_none() {
        return Ok(candidate.clone());
    }
    let wanted = in_variables(candidate.clone());
    if let Some((variable, value)) = wanted.environment.iter().find(|(_, value)| runtime::names_limit(value))
    {
        return Err(Hinted::error(
            format!(
                "{}: it depends on the memory limit of the container, which is not known here",
                candidate.name
            ),
            format!("set {variable} yourself: {value}, with the number in place of the braces"),
        ));
    }
    of_version(None, &wanted, environment, None).map_err(|why| {
        Hinted::error(
            format!("{} is not offered: {why}", candidate.name),
            "what you set yourself stays as it is",
        )
    })
}

/// The candidate for an unknown image or pod: variables alone where that is enough.
///
/// # Errors
/// If a variable would need to know the memory limit.
pub fn for_container(candidate: &CatalogueCandidate) -> Result<CatalogueCandidate> {
    for_any(candidate, &Variables::new()).map(bare)
}

/// The candidate for what a wrapper or a start script starts: the version of that is not known. A JVM has a look at its own
/// words then, where its flags can be set inside it.
///
/// # Errors
/// Why it does not get it, as a clause for people.
pub fn behind_a_script(
    candidate: &CatalogueCandidate,
    environment: &Variables,
    memory_limit: Option<u64>,
) -> Result<CatalogueCandidate, String> {
    const NEWEST: Option<&str> = Some("17+");
    in_variables_where_needed(candidate, |one| of_version(NEWEST, one, environment, memory_limit))
}

/// The candidate as `fit` makes it, without arguments: where some are left, arguments of the JVM become its
/// variable.
///
/// # Errors
/// Why the program does not get it, as a clause for people.
pub fn in_variables_where_needed(
    candidate: &CatalogueCandidate,
    fit: impl Fn(&CatalogueCandidate) -> Result<CatalogueCandidate, String>,
) -> Result<CatalogueCandidate, String> {
    let fitted = fit(candidate)?;
    let has_arguments = fitted.runtime.as_ref().is_some_and(|settings| !settings.arguments.is_empty());
    if has_arguments { fit(&in_variables(candidate.clone())) } else { Ok(fitted) }
}

/// The candidate for a program of its runtime, whatever versions it is for.
fn of_version(
    version: Option<&str>,
    candidate: &CatalogueCandidate,
    environment: &Variables,
    memory_limit: Option<u64>,
) -> Result<CatalogueCandidate, String> {
    let mut candidate = candidate.clone();
    let Some(settings) = &mut candidate.runtime else { return Ok(candidate) };
    settings.versions = VersionRange::default();
    let found = [FoundRuntime {
        runtime: settings.runtime,
        by: String::new(),
        version: version.map(str::to_owned),
        entry: RuntimeEntry::Own,
    }];
    let start = StartOfProgram {
        found: &found,
        file: Path::new(""),
        words: &[],
        has_files: false,
        is_by_script: false,
        unfit: None,
        environment,
        memory_limit,
    };
    fitted(&candidate, &start).map(left_open)
}

/// A runtime that reads its variables from the environment itself needs nothing of ours for that.
#[must_use]
pub fn left_open(candidate: CatalogueCandidate) -> CatalogueCandidate {
    let reads_itself = |settings: &RuntimeSettings| settings.runtime.delivery() == Delivery::Open;
    if candidate.runtime.as_ref().is_some_and(reads_itself) { bare(candidate) } else { candidate }
}

/// The candidate with nothing of ours loaded where it needs no library: its variables stay in the environment.
#[must_use]
pub fn bare(mut candidate: CatalogueCandidate) -> CatalogueCandidate {
    let loads = candidate.library.is_some();
    if let Some(settings) = candidate.runtime.as_mut().filter(|_| !loads) {
        settings.is_bare = true;
    }
    candidate
}

/// The candidate without arguments: a JVM's are put into its variable.
fn in_variables(mut candidate: CatalogueCandidate) -> CatalogueCandidate {
    if let Some(settings) = candidate.runtime.as_mut().filter(|settings| !settings.arguments.is_empty()) {
        let arguments = std::mem::take(&mut settings.arguments).join(" ");
        candidate.environment.insert(OF_JVM.to_owned(), arguments);
    }
    candidate
}

/// Whether the runtime prints a line about the settings at each start.
#[must_use]
pub fn prints_a_line(candidate: &CatalogueCandidate) -> bool {
    let has_arguments = |settings: &RuntimeSettings| !settings.arguments.is_empty();
    candidate.runtime.as_ref().is_some_and(has_arguments) || candidate.environment.contains_key(OF_JVM)
}

/// Where the trims of a candidate come from.
const TRIMS_COME_FROM: &str = "trims come from outside: 'imas trim' on the host, 'imas kube node --trim' in a cluster \
     (docs/trims.md)";

/// The candidate without trims, which no variable and no file brings; the remark on that for the user.
#[must_use]
pub fn without_trims(candidate: &CatalogueCandidate) -> (CatalogueCandidate, Option<String>) {
    match candidate.name.strip_suffix(TRIMS) {
        None => (candidate.clone(), None),
        Some(plain) => (
            CatalogueCandidate { name: plain.to_owned(), trims: false, ..candidate.clone() },
            Some(format!("this is {plain} alone; {TRIMS_COME_FROM}")),
        ),
    }
}

/// The candidate of that name for objects of a cluster, which no trims go with.
///
/// # Errors
/// If it goes with trims, or as for [`usable`].
pub fn usable_in_pods(context: &Context, name: &str) -> Result<CatalogueCandidate> {
    let candidate = usable(context, name)?;
    match name.strip_suffix(TRIMS) {
        None => Ok(candidate),
        Some(plain) => Err(Hinted::error(
            format!("{name}: {TRIMS_COME_FROM}"),
            format!("name {plain} here, and let the nodes trim: imas kube daemonset --trim"),
        )),
    }
}

/// Remarks for the user about a candidate in this form.
#[must_use]
pub fn remarks(candidate: &CatalogueCandidate) -> Vec<String> {
    let Some(settings) = &candidate.runtime else { return vec![] };
    let mut remarks = vec![];
    if prints_a_line(candidate) {
        remarks.push(format!(
            "the JVM prints the line 'Picked up {OF_JVM}: ...' on standard error at each start"
        ));
    }
    let chooses = |options: &String| options.contains("-XX:+Use") && options.contains("GC");
    if candidate.environment.get(OF_JVM).is_some_and(chooses) {
        remarks.push(
            "a JVM that is given another collector too, by JAVA_OPTS or on its command line, does not start"
                .to_owned(),
        );
    }
    if settings.is_bare || settings.runtime.delivery() == Delivery::Open {
        let names: Vec<_> = candidate.environment.keys().map(String::as_str).collect();
        let names = names.join(" and ");
        if settings.runtime == Runtime::Dotnet {
            remarks.push(format!("{names} wins over what the application's runtimeconfig.json may set"));
        }
        remarks.push(format!("what the program starts in turn inherits {names}"));
    }
    remarks
}

/// Remark for the user on machines with more processors than this one's `cpus`, where all threads share one heap or a few
/// with their locks: the time that they wait grows faster than the processors (`bench/locks`, docs/services.md). None where
/// the number of heaps grows with the threads or the processors.
#[must_use]
pub fn remark_on_processors(candidate: &CatalogueCandidate, cpus: u32) -> Option<String> {
    let heaps = shared_heaps(candidate)?;
    let shared = if heaps == 1 {
        "one heap and its lock".to_owned()
    } else {
        format!("{heaps} heaps and their locks")
    };
    Some(format!(
        "{}: all threads share {shared}; on a machine with more than {} measure anew (docs/services.md)",
        candidate.name,
        counted(cpus as usize, "processor")
    ))
}

/// Heaps that all threads share, where a setting of glibc or jemalloc limits them.
fn shared_heaps(candidate: &CatalogueCandidate) -> Option<u32> {
    const LIMITS: [&str; 2] = ["glibc.malloc.arena_max=", "narenas:"];
    let settings = candidate.environment.values();
    let limits = settings.flat_map(|value| LIMITS.iter().filter_map(move |limit| value.split_once(limit)));
    let heaps = limits.filter_map(|(_, rest)| rest.split([':', ',']).next()?.parse().ok());
    heaps.filter(|heaps| *heaps > 0).min()
}

/// The licence of IMAS, for the guard and for the layer that IMAS adds to each allocator.
pub const OUR_LICENCE: &str = include_str!("../../../LICENSE");
/// File with the licences of the allocators, written by the build.
const LICENCES: &str = "licences.txt";

/// The licence of IMAS and the unchanged licences of the allocator.
///
/// # Errors
/// If the licence of the allocator is not there.
pub fn licences_of(context: &Context, candidate: &CatalogueCandidate) -> Result<String> {
    let ours = format!("IMAS (libimas-guard.so and the layer over each allocator):\n\n{OUR_LICENCE}\n");
    let Some(library) = &candidate.library else { return Ok(ours) };
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    // The textbook allocators are part of IMAS.
    if name.starts_with("libimas-") {
        return Ok(ours);
    }
    if candidate.added {
        return Ok(format!("{ours}{name}: {}\n", candidate.licence));
    }
    let file = context.lib_dir.join(LICENCES);
    let all = std::fs::read_to_string(&file).unwrap_or_default();
    let theirs = sections_of(&all, &name);
    if theirs.is_empty() {
        return Err(Hinted::error(
            format!("{}: the licence of {name} is not there, and must come along", file.display()),
            "'make allocators' writes it; an installed IMAS has it",
        ));
    }
    Ok(ours + &theirs)
}

/// Selects the sections whose title names the library. A title stands between two lines of equals signs.
fn sections_of(all: &str, library: &str) -> String {
    let rule = "=".repeat(78);
    let parts: Vec<_> = all.split(rule.as_str()).collect();
    let is_of = |title: &str| title.trim_start().starts_with(&format!("{library}, "));
    let sections = parts.windows(2).filter(|pair| is_of(pair[0]));
    sections.map(|pair| format!("{rule}{}{rule}{}", pair[0], pair[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_of_few_heaps_has_a_remark_on_processors() {
        let says = |value: &str, cpus| {
            let environment = [("X".to_owned(), value.to_owned())].into();
            let one = CatalogueCandidate { name: "x".into(), environment, ..CatalogueCandidate::default() };
            remark_on_processors(&one, cpus)
        };
        let one = says("glibc.malloc.arena_max=1:glibc.malloc.top_pad=0", 2).unwrap();
        assert!(one.contains("one heap and its lock; on a machine with more than 2 processors"), "{one}");
        let two = says("dirty_decay_ms:0,narenas:2", 64).unwrap();
        assert!(two.contains("2 heaps and their locks; on a machine with more than 64 processors"), "{two}");
        assert_eq!(
            [says("glibc.malloc.hugetlb=1", 2), says("narenas:x", 2), says("narenas:0", 2)],
            [None, None, None]
        );
    }

    #[test]
    fn the_licences_of_one_library_are_found() {
        let rule = "=".repeat(78);
        let all =
            format!("\n{rule}\nliba.so, from x: L\n{rule}\n\nA\n\n{rule}\nlibb.so, from y: L\n{rule}\n\nB\n");
        let b = sections_of(&all, "libb.so");
        assert!(b.contains("libb.so, from y") && b.contains("\nB\n") && !b.contains("liba.so"), "{b}");
        assert_eq!(sections_of(&all, "libc.so"), "");
    }
}
