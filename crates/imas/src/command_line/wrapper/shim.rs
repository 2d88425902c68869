// SPDX-License-Identifier: Apache-2.0
//! Shims of pyenv, rbenv and their kind: a script that asks the manager which program is meant and execs it.
//! The managers run hook scripts before that exec; ours puts `imas run` before the program.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use imas_linux::environment::Variables;
use imas_linux::page;

/// The words to put before the program, for our hook; it unsets this.
const WORDS: &str = "IMAS_SHIM_WORDS";
/// The folder of our hook, which it takes out of the manager's list again.
const FOLDER: &str = "IMAS_SHIM_FOLDER";

/// The hook: PREFIX stands for the manager's name in capitals. It is sourced by the manager, whose `$1` is
/// the program's name.
const HOOK: &str = r#"# Written by 'imas run': puts it before the program that PREFIX starts.
if [ -n "$IMAS_SHIM_WORDS" ]; then
  eval "imas_words=($IMAS_SHIM_WORDS)"
  set -- "$1" "${imas_words[@]:1}" "$PREFIX_COMMAND_PATH" "${@:2}"
  PREFIX_COMMAND_PATH="${imas_words[0]}"
  PREFIX_HOOK_PATH="${PREFIX_HOOK_PATH#"$IMAS_SHIM_FOLDER:"}"
  unset IMAS_SHIM_WORDS IMAS_SHIM_FOLDER imas_words
fi
"#;

/// What the names of the manager's variables begin with, if the file is a shim: `PYENV`.
pub(super) fn prefix(file: &Path) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(file).ok()?.take(2048).read_to_string(&mut text).ok()?;
    let last = text.starts_with("#!").then(|| text.lines().rfind(|line| !line.trim().is_empty()))??;
    let manager = last.strip_prefix("exec \"")?.strip_suffix("\" exec \"$program\" \"$@\"")?;
    let name = Path::new(manager).file_name()?.to_str()?;
    let is_plain = name.ends_with("env") && name.bytes().all(|byte| byte.is_ascii_lowercase());
    is_plain.then(|| name.to_ascii_uppercase())
}

/// Writes the hook and has the manager find it before all others.
pub(super) fn set(prefix: &str, launcher: &str, environment: &mut Variables) -> Option<()> {
    let folder = write(prefix).ok()?;
    let list: OsString = format!("{prefix}_HOOK_PATH").into();
    let mut hooks = folder.clone().into_os_string();
    if let Some(old) = environment.get(&list).filter(|old| !old.is_empty()) {
        hooks.push(":");
        hooks.push(old);
    }
    environment.insert(list, hooks);
    environment.insert(WORDS.into(), launcher.into());
    environment.insert(FOLDER.into(), folder.into());
    Some(())
}

/// The folder with the hook, beside the trial pages, where this user alone can write.
fn write(prefix: &str) -> Result<PathBuf, page::PageFileError> {
    let folder = page::folder()?.join(prefix.to_ascii_lowercase());
    let exec = folder.join("exec");
    page::private_folder(&folder)?;
    page::private_folder(&exec)?;
    let (file, text) = (exec.join("imas.bash"), HOOK.replace("PREFIX", prefix));
    if std::fs::read(&file).is_ok_and(|known| known == text.as_bytes()) {
        return Ok(folder);
    }
    let io = |error| page::PageFileError::Io { path: file.clone(), error };
    let written = exec.join(format!("{}.new", std::process::id()));
    std::fs::write(&written, text).map_err(io)?;
    std::fs::rename(&written, &file).map_err(io)?;
    Ok(folder)
}
