// SPDX-License-Identifier: Apache-2.0
//! Help for a process: the one place that names commands.
//!
//! A trim is promised where the look can know that it will come about, and is an attempt elsewhere.

use imas_core::SYSTEM;
use imas_linux::heap::figures::HeapFigures;
use imas_linux::runtime::Runtime;
use imas_linux::serving::RealCandidates;

use super::{AboutProcess, ProcessLook};
use crate::prices::{AdvisedRestart, advised_restart};

/// Fewer bytes that a trim would return do not justify a restart.
pub const LEAST_BYTES: u64 = 8 << 20;
/// Fewer bytes are left alone by a trim of one process.
pub const LEAST_TRIM: u64 = 1 << 20;
/// The command that compares allocators and settings.
pub(super) const COMPARE: &str = "'imas bench -- COMMAND' compares them";
/// Oldest minor version of glibc 2 on which trims from outside were tried.
const TRIMMED_SINCE: u32 = 34;

/// Expectation of a trim from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimOutlook {
    /// Nothing speaks against it.
    Returns,
    /// It may be refused, for this reason.
    Tries(&'static str),
    /// It takes no process with so little.
    TooLittle,
}

impl TrimOutlook {
    /// Expectation by what a look has found.
    #[must_use]
    pub fn of(look: &ProcessLook) -> Self {
        let Ok(heaps) = &look.heaps else { return Self::Tries("its heaps cannot be read") };
        match Self::doubt(look, heaps) {
            _ if heaps.bytes.returnable < LEAST_TRIM => Self::TooLittle,
            Some(doubt) => Self::Tries(doubt),
            None => Self::Returns,
        }
    }

    /// Reason why a trim may be refused, whatever there is to return.
    fn doubt(look: &ProcessLook, heaps: &HeapFigures) -> Option<&'static str> {
        let minor = heaps.glibc.strip_prefix("2.").and_then(|minor| minor.parse::<u32>().ok());
        let is_jvm = look.jvm.is_some() || look.about.runtime() == Some(Runtime::Jvm);
        look.trim_doubt
            .or_else(|| is_jvm.then_some("a JVM seldom has a thread that waits where one may be interrupted"))
            .or_else(|| {
                minor.is_some_and(|minor| minor < TRIMMED_SINCE).then_some("its glibc is too old for one")
            })
    }

    /// The command for a process or service of this name, with what it does to `what`; None where there is too little.
    #[must_use]
    pub fn words(self, name: &str, what: &str) -> Option<String> {
        match self {
            Self::Returns => Some(format!("'imas trim {name}' returns {what} now")),
            Self::Tries(doubt) => Some(format!("'imas trim {name}' tries to return {what} ({doubt})")),
            Self::TooLittle => None,
        }
    }
}

/// The restart that keeps fewer free pages of a process, where nobody has chosen its candidate yet.
#[must_use]
pub fn restart<'a>(
    about: &AboutProcess,
    heaps: &HeapFigures,
    candidates: &'a RealCandidates,
) -> Option<AdvisedRestart<'a>> {
    let is_untouched = about.candidate.as_deref().is_none_or(|name| name == SYSTEM);
    advised_restart(about.runtime(), heaps.arenas, candidates).filter(|_| is_untouched)
}

/// Remedy that returns the free pages, if these are enough to matter.
pub(super) fn remedy(look: &ProcessLook, candidates: &RealCandidates) -> Option<String> {
    let heaps = look.heaps.as_ref().ok()?;
    (heaps.bytes.returnable >= LEAST_BYTES).then(|| remedy_words(look, heaps, candidates))
}

/// Words for the commands that return the free pages of a process or its service now, and that keep fewer of them later.
#[must_use]
pub fn remedy_words(look: &ProcessLook, heaps: &HeapFigures, candidates: &RealCandidates) -> String {
    let about = &look.about;
    // A service has enough where this process may have little.
    let outlook = TrimOutlook::doubt(look, heaps).map_or(TrimOutlook::Returns, TrimOutlook::Tries);
    let now = outlook.words(&about.name(), "the free pages").unwrap_or_default();
    let Some(restart) = restart(about, heaps, candidates) else { return now };
    let start = match &about.unit {
        Some(unit) => format!("'imas apply {unit} --candidate {}'", restart.candidate),
        None => format!("'imas run --candidate {} -- ...'", restart.candidate),
    };
    format!("{now}; {start} keeps fewer from the next start on; {}", priced(&restart))
}

/// The price of a restart as far as it is known, and what to do where there is one.
fn priced(restart: &AdvisedRestart<'_>) -> String {
    match restart.is_free {
        true => restart.price.clone(),
        false => format!("{}: measure first with 'imas bench' (docs/services.md)", restart.price),
    }
}

/// Help for the memory of a runtime: its settings, where the catalogue has some that change it.
pub(super) fn runtime_remedy(runtime: Option<Runtime>) -> String {
    match runtime {
        Some(Runtime::Jvm | Runtime::Node | Runtime::Go | Runtime::Dotnet | Runtime::Ocaml) => {
            "settings of the runtime: 'imas list' names them, 'imas bench' tries them".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use imas_linux::catalogue::CatalogueCandidate;
    use imas_linux::heap::figures::HeapBytes;
    use imas_linux::jvm_heap::JvmHeap;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A process with 9 arenas, where a trim returns `returnable` MiB.
    fn look(returnable: u64) -> ProcessLook {
        let bytes = HeapBytes { live: 88 * MIB, returnable: returnable * MIB, ..HeapBytes::default() };
        let glibc = "2.36".to_owned();
        let heaps = HeapFigures { glibc, held: 153 * MIB, arenas: 9, bytes, ..HeapFigures::default() };
        ProcessLook {
            about: AboutProcess { pid: 7, ..AboutProcess::default() },
            heaps: Ok(heaps),
            ..ProcessLook::default()
        }
    }

    #[test]
    fn a_trim_is_promised_where_nothing_speaks_against_it() {
        let says = |look: &ProcessLook| TrimOutlook::of(look).words("7", "them");
        assert_eq!(says(&look(2)).as_deref(), Some("'imas trim 7' returns them now"));
        assert_eq!(says(&look(0)), None, "it takes no such process");
        let tries = |change: fn(&mut ProcessLook)| {
            let mut one = look(57);
            change(&mut one);
            let all = remedy(&one, &RealCandidates::default()).unwrap();
            assert!(all.starts_with("'imas trim 7' tries to return the free pages ("), "{all}");
            says(&one).unwrap()
        };
        let filter = tries(|one| one.trim_doubt = Some("it has a filter"));
        assert_eq!(filter, "'imas trim 7' tries to return them (it has a filter)");
        assert!(tries(|one| one.jvm = Some(JvmHeap::default())).contains("JVM"));
        assert!(tries(|one| one.about.runtime = Some((Runtime::Jvm, None))).contains("JVM"));
        let old = tries(|one| one.heaps.as_mut().unwrap().glibc = "2.31".into());
        assert!(old.contains("too old"), "{old}");
    }

    #[test]
    fn settings_are_named_for_runtimes_of_which_the_catalogue_has_some() {
        let catalogue = include_str!("../../../../allocators/catalogue.toml");
        for runtime in Runtime::ALL {
            let has_some = catalogue.contains(&format!("runtime = \"{}\"", runtime.id()));
            assert!(has_some || runtime_remedy(Some(runtime)).is_empty(), "{runtime:?}");
        }
        assert!(!runtime_remedy(Some(Runtime::Jvm)).is_empty());
        for none in [None, Some(Runtime::Cpython), Some(Runtime::Ruby), Some(Runtime::Php)] {
            assert!(runtime_remedy(none).is_empty(), "{none:?}");
        }
    }

    #[test]
    fn a_restart_is_advised_for_a_process_that_is_untouched() {
        let one_arena = CatalogueCandidate {
            name: "glibc:arena1".into(),
            allocator: "glibc".into(),
            environment: [("GLIBC_TUNABLES".to_owned(), "glibc.malloc.arena_max=1".to_owned())].into(),
            ..CatalogueCandidate::default()
        };
        let all = RealCandidates::of([&one_arena]);
        let says = |candidate: &str, unit: Option<&str>| {
            let mut look = look(57);
            (look.about.unit, look.about.candidate) = (unit.map(str::to_owned), Some(candidate.into()));
            remedy(&look, &all).unwrap()
        };
        assert_eq!(says("glibc:arena1", None), "'imas trim 7' returns the free pages now");
        let later = says("system", None);
        let run = "'imas run --candidate glibc:arena1 -- ...' keeps fewer from the next start on; none of ";
        assert!(later.contains(run), "{later}");
        assert!(later.ends_with("took more CPU time"), "a restart has its price: {later}");
        let service = says("system", Some("web.service"));
        let apply = "'imas trim web.service' returns the free pages now; 'imas apply web.service --candidate";
        assert!(service.starts_with(apply), "{service}");
    }
}
