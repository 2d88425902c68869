// SPDX-License-Identifier: Apache-2.0
//! Files of raw runs.
//!
//! - [`Journal`]: a file of JSON lines that is only appended to: whatever ends the program, every line that was finished
//!   is kept
//! - [`read_text`]: a file as text; it is packed with gzip where it is kept with a source tree (`imas-lab suite pack`)
//! - [`read_data`]: the runs of several files, to replay or show them

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Stdout, Write};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use imas_cli::message::{self, Hinted};
use imas_core::raw_runs::data;
use imas_linux::files;
use serde::Serialize;

/// The open file, or standard output.
#[derive(Debug)]
pub struct Journal {
    out: Out,
    path: PathBuf,
    text: String,
    torn_bytes: u64,
}

#[derive(Debug)]
enum Out {
    File(File),
    Stdout(Stdout),
}

/// How the last line of a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    Whole,
    /// The last line is complete, but without its newline.
    Unterminated,
    /// The last line is the beginning of an object, from this byte on.
    Torn(usize),
}

impl Journal {
    /// Opens the file for appending and reads what is in it.
    ///
    /// A last line without its newline is what a kill or a full disk left. The beginning of an object is cut
    /// off, so that the next line does not become part of it. Anything else gets its newline: a line that is
    /// complete, or text that is not ours to remove.
    ///
    /// # Errors
    /// When it cannot be opened, read or written, or is packed.
    pub fn open(path: &Path) -> Result<Self> {
        Self::of(imas_cli::output_file::open_to_append(path)?, path)
    }

    /// Opens it as [`Self::open`] does, for one session at a time; None where another has it open in this way. A pipe
    /// or a terminal is open for all.
    ///
    /// # Errors
    /// When [`Self::open`] would fail, or the file cannot be locked.
    pub fn open_alone(path: &Path) -> Result<Option<Self>> {
        let file = imas_cli::output_file::open_to_append(path)?;
        if file.metadata()?.is_file() && !files::lock(&file)? {
            return Ok(None);
        }
        Self::of(file, path).map(Some)
    }

    fn of(mut file: File, path: &Path) -> Result<Self> {
        let mut bytes = Vec::new();
        let mut torn_bytes = 0;
        // Nothing can be read back from a pipe or a terminal.
        if file.metadata()?.is_file() {
            file.read_to_end(&mut bytes)?;
            if bytes.starts_with(&MAGIC) {
                return Err(Error::new(ErrorKind::InvalidData, "it is packed: unpack it with gunzip first"));
            }
            torn_bytes = mend(&mut file, &mut bytes)?;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Self { out: Out::File(file), path: path.to_owned(), text, torn_bytes })
    }

    /// Lines to standard output.
    #[must_use]
    pub fn stdout() -> Self {
        let out = Out::Stdout(std::io::stdout());
        Self { out, path: "-".into(), text: String::new(), torn_bytes: 0 }
    }

    /// Path of the journal; `-` for standard output.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Contents of the journal when it was opened: whole lines.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Bytes of a torn last line that were cut off when it was opened.
    #[must_use]
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Appends one line by a single write. Where that fails half-way, as on a full disk, the half is taken
    /// back.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, line: &impl Serialize) -> Result<()> {
        let mut bytes = serde_json::to_vec(line).map_err(Error::other)?;
        bytes.push(b'\n');
        match &mut self.out {
            Out::Stdout(out) => out.write_all(&bytes).and_then(|()| out.flush()),
            Out::File(file) => append_whole(file, &bytes),
        }
    }
}

fn append_whole(file: &mut File, bytes: &[u8]) -> Result<()> {
    let about = file.metadata()?;
    file.write_all(bytes).inspect_err(|_| {
        if about.is_file() {
            let _ = file.set_len(about.len()); // the error is that of writing
        }
    })
}

/// Makes file and bytes end with a newline; how many bytes were cut off.
fn mend(file: &mut File, bytes: &mut Vec<u8>) -> Result<u64> {
    match tail(bytes) {
        Tail::Whole => Ok(0),
        Tail::Unterminated => {
            file.write_all(b"\n")?;
            bytes.push(b'\n');
            Ok(0)
        }
        Tail::Torn(from) => {
            let torn = bytes.len() - from;
            bytes.truncate(from);
            file.set_len(from as u64)?;
            file.seek(SeekFrom::End(0))?;
            Ok(torn as u64)
        }
    }
}

fn tail(bytes: &[u8]) -> Tail {
    let from = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let last = &bytes[from..];
    if last.is_empty() {
        return Tail::Whole;
    }
    let is_complete = serde_json::from_slice::<serde::de::IgnoredAny>(last).is_ok();
    let is_object = last.trim_ascii_start().starts_with(b"{");
    if is_object && !is_complete { Tail::Torn(from) } else { Tail::Unterminated }
}

/// First bytes of a gzip file.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The text of a file of raw runs, packed or not.
///
/// # Errors
/// When it cannot be read, is damaged or is no text.
pub fn read_text(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path)?;
    let bytes = if bytes.starts_with(&MAGIC) {
        let mut plain = vec![];
        MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain)?;
        plain
    } else {
        bytes
    };
    String::from_utf8(bytes).or_else(|error| match error.utf8_error().error_len() {
        // The last line is cut off within a character.
        None => Ok(String::from_utf8_lossy(error.as_bytes()).into_owned()),
        Some(_) => Err(Error::new(ErrorKind::InvalidData, "it is no text")),
    })
}

/// The runs of all files; other lines are reported.
///
/// # Errors
/// When a file cannot be read.
pub fn read_data(files: &[PathBuf]) -> anyhow::Result<data::Data> {
    let texts = files.iter().map(|file| read_or_hint(file)).collect::<anyhow::Result<Vec<_>>>()?;
    let data = data::read_all(texts.iter().map(String::as_str));
    if let [first, others @ ..] = data.unreadable.as_slice() {
        let and = if others.is_empty() { String::new() } else { format!("; {} more lines", others.len()) };
        let file = files[first.text].display();
        message::warning(&format!(
            "{file}: line {} is no run and is skipped: {}{and}",
            first.line, first.why
        ));
    }
    Ok(data)
}

/// The text of one, packed or not.
///
/// # Errors
/// When it cannot be read; the error has a hint.
pub fn read_or_hint(file: &Path) -> anyhow::Result<String> {
    read_text(file).map_err(|error| {
        Hinted::error(
            format!("{} cannot be read: {error}", file.display()),
            "--data names files of runs, as 'imas bench --export-runs' writes them",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: &str) -> (String, u64) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), before).unwrap();
        let mut journal = Journal::open(file.path()).unwrap();
        journal.append(&[1]).unwrap();
        (std::fs::read_to_string(file.path()).unwrap(), journal.torn_bytes())
    }

    #[test]
    fn a_torn_line_is_cut_off_and_nothing_else() {
        for (before, wanted, torn) in [
            ("", "[1]\n", 0),
            ("{\"a\":1}\n", "{\"a\":1}\n[1]\n", 0),
            ("{\"a\":1}\n{\"b\":", "{\"a\":1}\n[1]\n", 5),
            ("{\"a\":1}\n{\"b\":\"\\u", "{\"a\":1}\n[1]\n", 8),
            ("{\"a\":1}", "{\"a\":1}\n[1]\n", 0),
            ("some text", "some text\n[1]\n", 0),
        ] {
            assert_eq!(after(before), (wanted.to_owned(), torn), "{before:?}");
        }
    }

    #[test]
    fn a_pipe_takes_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Opened for both, it waits for nobody.
        let _reader = File::options().read(true).write(true).open(&pipe).unwrap();
        Journal::open(&pipe).unwrap().append(&[1]).unwrap();
    }

    #[test]
    fn a_journal_holds_whole_lines_only() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"{\"a\":1}\n{\"b\":\"\xc3").unwrap();
        assert_eq!(Journal::open(file.path()).unwrap().text(), "{\"a\":1}\n");
    }

    #[test]
    fn a_packed_file_is_not_appended_to() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), MAGIC).unwrap();
        assert!(Journal::open(file.path()).is_err());
        assert_eq!(std::fs::read(file.path()).unwrap(), MAGIC);
    }

    #[test]
    fn a_line_that_cannot_be_written_leaves_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.jsonl");
        let mut journal = Journal::open(&path).unwrap();
        journal.append(&"one").unwrap();
        // A file that may only be read refuses the write as a full disk does.
        journal.out = Out::File(File::open(&path).unwrap());
        assert!(journal.append(&"two").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "\"one\"\n");
    }
}
