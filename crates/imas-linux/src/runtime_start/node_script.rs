// SPDX-License-Identifier: Apache-2.0
//! Code caches that a script of Node.js makes or needs. V8 takes one only under the settings that it was made under: it is
//! slower where it was made in a trial, and a script that insists on its own fails.

use std::path::Path;

use super::StartOfProgram;
use crate::catalogue::CatalogueCandidate;
use crate::plain_file;
use crate::runtime::Runtime;

/// Bundles of one file have some megabytes.
const MOST_BYTES: usize = 8 << 20;
/// Parts of the names by which a script asks V8, Node.js or a package for such a cache.
const NAMES: [&[u8]; 4] = [b"achedData", b"ompileCache", b"compile-cache", b"bytenode"];

/// Why the script does not get the candidate; `None` where its own file names no cache. What it loads is not read.
pub(super) fn obstacle(candidate: &CatalogueCandidate, start: &StartOfProgram<'_>) -> Option<String> {
    let is_of_node = candidate.runtime.as_ref().is_some_and(|settings| settings.runtime == Runtime::Node);
    if !is_of_node || !start.has_files {
        return None;
    }
    let words = start.words.iter().map(Path::new);
    let script = words
        .into_iter()
        .find(|word| !word.as_os_str().as_encoded_bytes().starts_with(b"-") && word.is_file())?;
    let text = plain_file::read(script, MOST_BYTES).ok()?;
    let has = |name: &&[u8]| text.windows(name.len()).any(|part| part == *name);
    NAMES
        .iter()
        .any(has)
        .then(|| "its script uses code caches of V8, which hold under its own settings alone".to_owned())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::runtime::RuntimeSettings;
    use crate::variables::Variables;

    #[test]
    fn a_script_that_makes_code_caches_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a.js");
        let candidate = CatalogueCandidate {
            runtime: Some(RuntimeSettings::of(Runtime::Node)),
            ..CatalogueCandidate::default()
        };
        let why = |text: &str, words: &[&str]| {
            std::fs::write(&script, text).unwrap();
            let mut words: Vec<OsString> = words.iter().map(Into::into).collect();
            words.push(script.clone().into());
            let environment = Variables::new();
            let start = StartOfProgram {
                found: &[],
                file: Path::new("/p"),
                words: &words,
                has_files: true,
                is_by_script: false,
                unfit: None,
                environment: &environment,
                memory_limit: None,
            };
            obstacle(&candidate, &start)
        };
        for text in
            ["new vm.Script(s, {cachedData})", "script.createCachedData()", "require('v8-compile-cache')"]
        {
            assert!(why(text, &["--no-warnings", "-r", "x"]).is_some(), "{text}");
        }
        assert_eq!(why("console.log('data')", &[]), None);
    }
}
