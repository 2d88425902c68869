// SPDX-License-Identifier: Apache-2.0
//! The names that people use for a stored program.

use std::path::Path;

use imas_linux::started_name::name_of_detail;
use imas_store::samples::StoredProgram;

/// The file name of its executable, and for a script that of the script; the name by which it is started, where that
/// counts.
pub(crate) fn names(program: &StoredProgram) -> Vec<String> {
    if let Some(name) = name_of_detail(&program.detail) {
        return vec![name.to_owned()];
    }
    let script = Some(program.detail.as_str()).filter(|detail| detail.starts_with('/'));
    let paths = [Some(program.path.as_str()), script].into_iter().flatten();
    paths.filter_map(|path| Some(Path::new(path).file_name()?.to_string_lossy().into_owned())).collect()
}
