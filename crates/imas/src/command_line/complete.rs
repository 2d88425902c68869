// SPDX-License-Identifier: Apache-2.0
//! Proposals for a shell to complete: names of candidates and of programs that are known. Any trouble means
//! no proposals.

use std::ffi::OsStr;
use std::path::Path;

use clap_complete::engine::CompletionCandidate;
use imas_engine::context::Context;
use imas_engine::flags::{self, Places};
use imas_linux::interpreter_target::name_of_detail;
use imas_store::Store;
use imas_store::samples::StoredProgram;

fn context() -> Option<Context> {
    let named = |name: &str| flags::variable(name).map(Into::into);
    let places = Places {
        lib_dir: named("IMAS_LIB_DIR"),
        system: false,
        store: named("IMAS_STORE"),
        store_named: false,
        retest: None,
    };
    Context::new(&places).ok()
}

/// The candidates of the catalogue, each with what it is good at.
pub(crate) fn candidates(begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(context) = context() else { return vec![] };
    let begins = |name: &str| begun.to_str().is_some_and(|begun| name.starts_with(begun));
    let of = context.catalogue.all().filter(|candidate| begins(&candidate.name));
    of.map(|candidate| CompletionCandidate::new(&candidate.name).help(Some(candidate.summary.clone().into())))
        .collect()
}

/// The programs of the store, by name.
pub(crate) fn programs(begun: &OsStr) -> Vec<CompletionCandidate> {
    let store = context().and_then(|context| Store::open_read_only(&context.store_path).ok());
    let known = store.and_then(|store| store.programs().ok()).unwrap_or_default();
    let mut names: Vec<_> = known.iter().flat_map(program_names).collect();
    names.sort();
    names.dedup();
    names.retain(|name| begun.to_str().is_some_and(|begun| name.starts_with(begun)));
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The file name of its executable, or of its script; the name by which it is started, where that
/// counts.
pub(crate) fn program_names(program: &StoredProgram) -> Vec<String> {
    if let Some(name) = name_of_detail(&program.detail) {
        return vec![name.to_owned()];
    }
    let script = Some(program.detail.as_str()).filter(|detail| detail.starts_with('/'));
    let paths = [Some(program.path.as_str()), script].into_iter().flatten();
    paths.filter_map(|path| Some(Path::new(path).file_name()?.to_string_lossy().into_owned())).collect()
}
