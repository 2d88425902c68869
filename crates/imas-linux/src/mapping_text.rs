// SPDX-License-Identifier: Apache-2.0
//! Text of `maps` and `smaps`, whose paths a process in a container chooses.
//!
//! A process may have a million mappings where the machine allows it. So mappings are read one after the other, and a sum
//! holds two of them at a time.
//!
//! Libraries by the names of their files. The kernel writes ` (deleted)` after the name of a file that was replaced or
//! removed since it was mapped.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Error, ErrorKind, Read, Result};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use procfs::FromBufRead as _;
use procfs::process::{MemoryMap, MemoryMaps, Process, Stat};

/// Begin of the kernel's name for a segment of shared memory; its key follows, in hexadecimal.
const SEGMENT: &[u8] = b"/SYSV";
const KEY_BYTES: usize = 8;

/// Begins of the names of libraries with a malloc of their own, wherever they come from.
const ALLOCATORS: [&str; 8] = [
    "libhoard",
    "libjemalloc",
    "libmimalloc",
    "librpmalloc",
    "libscudo",
    "libsnmalloc",
    "libtbbmalloc",
    "libtcmalloc",
];

/// Most bytes of a mapping: a path of 4,096 bytes, which the kernel may write as four each, and 25 figures.
const MOST_BYTES: usize = 64 << 10;

/// The mappings of a task one after the other, as its `file` has them: `maps`, or `smaps` with their resident parts.
pub(crate) fn of_task(task: u32, file: &str) -> Result<Mappings<File>> {
    Ok(mappings(File::open(format!("/proc/{task}/{file}"))?))
}

/// The mappings in the text.
pub(crate) fn mappings<R: Read>(text: R) -> Mappings<R> {
    Mappings { text: BufReader::new(text), line: vec![], one: vec![] }
}

/// Shows each mapping with the one below and the one above it.
pub(crate) fn with_neighbours(
    mut maps: impl Iterator<Item = Result<MemoryMap>>,
    mut see: impl FnMut(Option<&MemoryMap>, &MemoryMap, Option<&MemoryMap>),
) -> Result<()> {
    let mut below = None;
    let mut next = maps.next().transpose()?;
    while let Some(map) = next {
        next = maps.next().transpose()?;
        see(below.as_ref(), &map, next.as_ref());
        below = Some(map);
    }
    Ok(())
}

/// Iterator over the mappings in a text.
#[derive(Debug)]
pub(crate) struct Mappings<R> {
    text: BufReader<R>,
    /// The line that was read last.
    line: Vec<u8>,
    /// Lines of the mapping that is read.
    one: Vec<u8>,
}

impl<R: Read> Iterator for Mappings<R> {
    type Item = Result<MemoryMap>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Err(error) = self.read_line() {
                self.one.clear();
                return Some(Err(error));
            }
            if self.line.first().is_some_and(u8::is_ascii_uppercase) {
                self.one.extend(&self.line);
                continue;
            }
            // The first line of the next one, or the end.
            std::mem::swap(&mut self.one, &mut self.line);
            if !self.line.is_empty() {
                return Some(parsed(&self.line));
            }
            if self.one.is_empty() {
                return None;
            }
        }
    }
}

impl<R: Read> Mappings<R> {
    /// Reads a line; none at the end.
    fn read_line(&mut self) -> Result<()> {
        self.line.clear();
        let most = MOST_BYTES.saturating_sub(self.one.len());
        self.text.by_ref().take(most as u64).read_until(b'\n', &mut self.line)?;
        if self.line.len() < most { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
    }
}

fn parsed(text: &[u8]) -> Result<MemoryMap> {
    let sound = with_sound_paths(text);
    let maps = MemoryMaps::from_buf_read(String::from_utf8_lossy(&sound).as_bytes());
    maps.map_err(Error::other)?.0.pop().ok_or_else(|| ErrorKind::InvalidData.into())
}

/// The text, in which no file has the begin of a segment's name: procfs panics where no key follows, and
/// reads nothing of a process where the key is no number.
fn with_sound_paths(text: &[u8]) -> Cow<'_, [u8]> {
    let mut sound = Cow::Borrowed(text);
    let mut begin = 0;
    for line in text.split(|byte| *byte == b'\n') {
        let slash = line.iter().position(|byte| *byte == b'/');
        if let Some(slash) = slash.filter(|slash| is_false_segment(&line[*slash..])) {
            sound.to_mut()[begin + slash + 1] = b's';
        }
        begin += line.len() + 1;
    }
    sound
}

fn is_false_segment(path: &[u8]) -> bool {
    let key = path.strip_prefix(SEGMENT).map(|rest| rest.get(..KEY_BYTES));
    key.is_some_and(|key| !key.is_some_and(|key| key.iter().all(u8::is_ascii_hexdigit)))
}

const MARK: &str = " (deleted)";

/// A C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CLibrary {
    /// GNU libc.
    Glibc,
    /// musl.
    Musl,
}

impl CLibrary {
    /// Returns the C library that the file belongs to, by its name. Before glibc 2.34 the file behind `libc.so.6` has the
    /// version in its name.
    #[must_use]
    pub fn of_file(file: &Path) -> Option<Self> {
        let name = file_name(file);
        if name == "libc.so.6" || version_behind(name, "libc-").is_some() {
            return Some(Self::Glibc);
        }
        let is_musl = name == "libc.so" || ["ld-musl-", "libc.musl-"].iter().any(|one| name.starts_with(one));
        is_musl.then_some(Self::Musl)
    }

    /// Returns the first C library among the files; `None` where none is mapped, as in a static program.
    pub fn among<'a>(files: impl IntoIterator<Item = &'a Path>) -> Option<Self> {
        files.into_iter().find_map(Self::of_file)
    }
}

/// Whether the file is the C library or the loader of glibc, by its name.
#[must_use]
pub fn is_of_glibc(file: &Path) -> bool {
    let name = file_name(file);
    let is_loader = name.starts_with("ld-linux") || version_behind(name, "ld-").is_some();
    is_loader || CLibrary::of_file(file) == Some(CLibrary::Glibc)
}

/// Returns the name of a library that has a malloc of its own, without what the kernel adds.
#[must_use]
pub fn allocator(file: &Path) -> Option<&str> {
    let name = file_name(file);
    ALLOCATORS.iter().any(|begin| name.starts_with(begin)).then_some(name)
}

/// Returns the version in the name of a file of glibc before 2.34: `2.31` of `libc-2.31.so`.
#[must_use]
pub fn version_in_name(file: &Path) -> Option<&str> {
    version_behind(file_name(file), "libc-")
}

fn version_behind<'a>(name: &'a str, begin: &str) -> Option<&'a str> {
    let version = name.strip_prefix(begin)?.strip_suffix(".so")?;
    let is_sound = version.starts_with("2.") && version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    is_sound.then_some(version)
}

/// Returns the name of a library up to the first number of its version, by which the loader looks for it:
/// `libx.so.2` of `libx.so.2.0`. `None` where the name has no version.
pub(super) fn release(file: &Path) -> Option<&str> {
    let name = file_name(file);
    let version = name.find(".so.")? + ".so.".len();
    let digits = name[version..].bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| &name[..version + digits])
}

/// Returns the last part of a path without what the kernel adds; empty where it is not UTF-8.
#[must_use]
pub fn file_name(file: &Path) -> &str {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_suffix(MARK).unwrap_or(name)
}

/// Returns the path that a file had when it was mapped.
#[must_use]
pub fn former_path(file: &Path) -> PathBuf {
    let bytes = file.as_os_str().as_bytes();
    OsString::from_vec(bytes.strip_suffix(MARK.as_bytes()).unwrap_or(bytes).to_vec()).into()
}

/// Whether the file was replaced or removed since it was mapped.
pub(super) fn is_replaced(file: &Path) -> bool {
    file.as_os_str().as_bytes().ends_with(MARK.as_bytes())
}

// The number under which `/proc` shows what a process is and has.
//
// A process may end its first thread and go on in others. What `/proc/PID` has of memory, files and mappings is that
// thread's, and is empty then, or 0. `/proc/TID` of a living thread has it, though no listing shows that folder.
// What the process is known by (its start, its parent, the CPU time of all its threads) stays in `/proc/PID`.

/// Most threads that are asked.
const MOST_THREADS: usize = 4096;

/// Returns the id of the first thread, which is the process's, or of another thread where that has ended.
#[must_use]
pub fn living_thread(pid: u32) -> u32 {
    living_instead(pid).unwrap_or(pid)
}

/// Returns what `read` finds under the id of the process, or else of a living thread.
pub fn ask_living<T>(pid: u32, read: impl Fn(u32) -> Option<T>) -> Option<T> {
    read(pid).or_else(|| read(living_instead(pid)?))
}

/// The first living thread where the first one of all has ended.
fn living_instead(pid: u32) -> Option<u32> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let stat = process.stat().ok()?;
    if !is_over(&stat) || stat.num_threads <= 1 {
        return None;
    }
    let tasks = process.tasks().ok()?.flatten().take(MOST_THREADS);
    let mut living = tasks.filter(|task| task.stat().is_ok_and(|stat| !is_over(&stat)));
    u32::try_from(living.next()?.tid).ok()
}

fn is_over(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X')
}

#[cfg(test)]
mod tests {
    use procfs::process::MMapPath;

    use super::*;

    #[test]
    fn a_library_with_a_malloc_of_its_own_is_known_wherever_it_lies() {
        let of = |file: &'static str| allocator(Path::new(file));
        assert_eq!(of("/opt/x/libjemalloc.so.2 (deleted)"), Some("libjemalloc.so.2"));
        assert_eq!(of("/x/libtcmalloc_minimal.so.4"), Some("libtcmalloc_minimal.so.4"));
        assert_eq!([of("/jemalloc/libc.so.6"), of("/var/lib/jemalloc.conf")], [None, None]);
    }

    #[test]
    fn a_file_with_the_begin_of_a_segments_name_is_a_file() {
        for name in ["/SYSV", "/SYSVa", "/SYSVabcdefg\u{e9}", "/SYSVnothexad (deleted)", "/SYSV/0123/4567"] {
            let text = format!(
                "10000000-10001000 rw-p 00000000 00:00 7          {name}\nRss: 8 kB\n\
                 20000000-20001000 rw-s 00000000 00:01 9          /SYSV0000abcd (deleted)\nRss: 12 kB\n"
            );
            let maps: Vec<_> = mappings(text.as_bytes()).map(Result::unwrap).collect();
            let file = name.replacen("SYSV", "sYSV", 1);
            assert_eq!(maps[0].pathname, MMapPath::Path(file.into()), "{name}");
            assert_eq!(maps[1].pathname, MMapPath::Vsys(0xabcd), "{name}");
            assert_eq!([&maps[0], &maps[1]].map(|map| map.extension.map["Rss"]), [8 << 10, 12 << 10]);
        }
    }

    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let text =
            b"1000-2000 r--p 00000000 08:01 7 /x\xff\n3000-4000 r--p 00000000 08:01 7 /lib/libc.so.6\n";
        let paths: Vec<_> = mappings(&text[..]).map(|map| map.unwrap().pathname).collect();
        assert_eq!(paths, ["/x\u{fffd}", "/lib/libc.so.6"].map(|path| MMapPath::Path(path.into())));
    }

    #[test]
    fn what_is_no_mapping_is_an_error_and_no_end() {
        for text in
            [&b"x\n"[..], b"1-2 r--p\n", b"1000-2000 r--p 00000000 00:00 0 \nRss: x kB\n", &[b'1'; 1 << 20]]
        {
            assert!(mappings(text).next().unwrap().is_err(), "{}", String::from_utf8_lossy(text));
        }
        assert!(mappings(&b""[..]).next().is_none());
    }

    /// A text of mappings without end, each with a name of its own.
    struct Endless {
        line: Vec<u8>,
        left: u32,
        most: usize,
    }

    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> Result<usize> {
            if self.line.is_empty() && self.left > 0 {
                self.left -= 1;
                let begin = u64::from(self.left) << 13;
                let name = format!("/{:0>4000}", self.left);
                let head = format!("{begin:x}-{:x} rw-p 00000000 08:01 7 {name}\n", begin + 4096);
                self.line = (head + "Size: 4 kB\nRss: 4 kB\nVmFlags: rd wr\n").into_bytes();
            }
            self.most = self.most.max(into.len());
            let got = into.len().min(self.line.len());
            into[..got].copy_from_slice(&self.line[..got]);
            self.line.drain(..got);
            Ok(got)
        }
    }

    #[test]
    fn many_mappings_take_the_room_of_two() {
        let count = 20_000;
        let mut maps = mappings(Endless { line: vec![], left: count, most: 0 });
        let mut seen = (0, 0);
        with_neighbours(maps.by_ref(), |_, map, _| seen = (seen.0 + 1, seen.1 + map.extension.map["Rss"]))
            .unwrap();
        assert_eq!(seen, (count, u64::from(count) << 12));
        let held = maps.line.capacity() + maps.one.capacity() + maps.text.get_ref().most;
        assert!(held < 4 * 8192, "{held}");
    }
}
