// SPDX-License-Identifier: Apache-2.0
//! Bytes to [`super::ParsedPage`].

use imas_abi::{
    HEADER_BYTES, PAGE_MAGIC, PAGE_VERSION, PageHeader, TRIAL_PAGE_BYTES, page_kind, pass_reason, state,
};
use imas_core::sample::{Ended, PageKind};
use zerocopy::FromBytes;

use crate::ingest::calls::{Calls, Clock, memory, usage};
use crate::ingest::{OWN_FILTER, PageError, ParsedPage, State, TextProblem};

/// Signals that the injected code notes: ILL, ABRT, BUS, FPE, SEGV, SYS.
const FATAL_SIGNALS: [u32; 6] = [4, 6, 7, 8, 11, 31];

/// Judges the bytes of a page file.
///
/// # Errors
/// The first thing found wrong, see the crate's documentation for the list.
pub fn parse(bytes: &[u8]) -> Result<ParsedPage, PageError> {
    if bytes.len() == HEADER_BYTES {
        let (header, _) = PageHeader::read_from_prefix(bytes).map_err(|_| PageError::Size(bytes.len()))?;
        let kind = envelope(&header, bytes.len())?;
        let clock = Clock::of(&header)?;
        return page(&header, kind, clock, Calls::default());
    }
    let whole = imas_abi::Page::read_from_bytes(bytes).map_err(|_| PageError::Size(bytes.len()))?;
    let kind = envelope(&whole.header, bytes.len())?;
    let clock = Clock::of(&whole.header)?;
    let calls = Calls::of(&whole.sampled, &whole.slot, &clock, whole.header.threads)?;
    page(&whole.header, kind, clock, calls)
}

/// Magic, version, kind, sizes and the armed flag: what must hold before any other field means something.
fn envelope(header: &PageHeader, file_bytes: usize) -> Result<PageKind, PageError> {
    if header.magic != PAGE_MAGIC {
        return Err(PageError::Magic(header.magic));
    }
    if header.version != PAGE_VERSION {
        return Err(PageError::Version(header.version));
    }
    let (kind, kind_bytes) = match header.kind {
        page_kind::TRIAL => (PageKind::Trial, TRIAL_PAGE_BYTES),
        page_kind::FLIGHT => (PageKind::Flight, HEADER_BYTES),
        other => return Err(range("kind", other)),
    };
    if kind_bytes != file_bytes || usize::try_from(header.page_bytes) != Ok(file_bytes) {
        return Err(PageError::SizeField { header: header.page_bytes, file: file_bytes });
    }
    if flag("armed", header.armed)? { Ok(kind) } else { Err(PageError::NotArmed) }
}

fn page(header: &PageHeader, kind: PageKind, clock: Clock, calls: Calls) -> Result<ParsedPage, PageError> {
    let state = state_of(header.state)?;
    Ok(ParsedPage {
        kind,
        pid: header.pid,
        uid: header.uid,
        process_start_ticks: header.process_start_ticks,
        boot_id: hex_text("boot_id", &header.boot_id)?,
        made_unix_s: made_unix_s(header.made_unix_ns)?,
        trial_id: name_text("trial_id", &header.trial_id)?,
        candidate: name_text("candidate", &header.candidate)?,
        program: path_text("program", &header.program)?,
        detail: any_text("detail", &header.detail)?,
        build_id: hex_text("build_id", &header.build_id)?,
        state,
        pass_reason: pass_reason_of(header.pass_reason, state)?,
        ended: ended(header, state)?,
        fatal_code: header.fatal_code,
        is_in_own_call: header.own_calls != 0,
        forks: header.forks,
        is_forked: flag("forked", header.forked)?,
        threads: header.threads,
        served: free_text("served", &header.served)?,
        memory: memory(header)?,
        usage: usage(header)?,
        clock,
        calls,
    })
}

fn range(field: &'static str, value: impl Into<u64>) -> PageError {
    PageError::Range { field, value: value.into() }
}

fn flag(field: &'static str, value: impl Into<u64>) -> Result<bool, PageError> {
    match value.into() {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(range(field, other)),
    }
}

/// Signed 64-bit nanoseconds last until 2262.
fn made_unix_s(made_unix_ns: u64) -> Result<f64, PageError> {
    let field = "made_unix_ns";
    i64::try_from(made_unix_ns).map_err(|_| PageError::Range { field, value: made_unix_ns })?;
    Ok(made_unix_ns as f64 / 1e9)
}

fn state_of(value: u32) -> Result<State, PageError> {
    Ok(match value {
        state::ARMED => State::Armed,
        state::ENTERED => State::Entered,
        state::ACTIVE => State::Active,
        state::TRIAL => State::Trial,
        state::PASS => State::Pass,
        other => return Err(range("state", other)),
    })
}

/// The reason's word. State and reason are two stores: a process killed between them leaves one without the
/// other, and either means that it stood aside.
fn pass_reason_of(value: u32, state: State) -> Result<Option<&'static str>, PageError> {
    Ok(Some(match value {
        pass_reason::NONE if state == State::Pass => "unstated",
        pass_reason::NONE => return Ok(None),
        pass_reason::DISABLED => "disabled",
        pass_reason::OWN_MALLOC => "own-malloc",
        pass_reason::SECCOMP => "seccomp",
        pass_reason::RLIMIT_AS => "rlimit-as",
        pass_reason::LD_AUDIT => "ld-audit",
        pass_reason::VALGRIND => "valgrind",
        pass_reason::SANITIZER => "sanitizer",
        pass_reason::NO_ALLOCATOR => "no-allocator",
        pass_reason::PAGE => "page",
        pass_reason::NOT_THE_PROGRAM => "not-the-program",
        pass_reason::PID1 => "pid1",
        pass_reason::INTERFACE => "allocator-interface",
        pass_reason::WRAPPED => "wrapped-function",
        pass_reason::TOO_EARLY => "too-early",
        pass_reason::OWN_FILTER => OWN_FILTER,
        other => return Err(range("pass_reason", other)),
    }))
}

/// `si_code` of a signal that another process sent by kill(2); the injected code notes another one for what a
/// process sends itself.
const SI_USER: u32 = 0;

/// A fatal signal counts even after a clean exit was noted: the process then died in what runs after our exit
/// handler. One that another process sent, as systemd's watchdog sends SIGABRT, is not the program's.
fn ended(header: &PageHeader, state: State) -> Result<Ended, PageError> {
    let is_clean = flag("clean_exit", header.clean_exit)?;
    match header.fatal_signal {
        0 => {}
        signal if !FATAL_SIGNALS.contains(&signal) => return Err(range("fatal_signal", signal)),
        signal if header.fatal_code == SI_USER => return Ok(Ended::Killed { signal }),
        signal => return Ok(Ended::Signal { signal }),
    }
    Ok(match (is_clean, state) {
        (true, _) => Ended::Clean { status: exit_status(header.exit_status) },
        (false, State::Armed) => Ended::NeverEntered,
        (false, _) => Ended::Unknown,
    })
}

/// -1: not seen. Of the rest the parent sees the low eight bits.
fn exit_status(status: i32) -> Option<i32> {
    (status != -1).then_some(status & 0xff)
}

/// Bytes before the closing NUL. What follows it is not read.
fn closed<'a>(field: &'static str, bytes: &'a [u8]) -> Result<&'a [u8], PageError> {
    let end = bytes.iter().position(|&byte| byte == 0);
    end.map(|end| &bytes[..end]).ok_or_else(|| problem(field, TextProblem::Unterminated))
}

fn problem(field: &'static str, problem: TextProblem) -> PageError {
    PageError::Text { field, problem }
}

/// Name of a file, or words of a command line: they may hold anything but a NUL. Bytes that are not UTF-8 are replaced.
/// Whoever prints it escapes it, as every name of a program.
pub(crate) fn any_text(field: &'static str, bytes: &[u8]) -> Result<String, PageError> {
    Ok(String::from_utf8_lossy(closed(field, bytes)?).into_owned())
}

/// Free text for people: as [`any_text`], and control characters are refused.
fn free_text(field: &'static str, bytes: &[u8]) -> Result<String, PageError> {
    let text = any_text(field, bytes)?;
    if text.chars().any(char::is_control) {
        return Err(problem(field, TextProblem::Control));
    }
    Ok(text)
}

/// An absolute path, never empty.
fn path_text(field: &'static str, bytes: &[u8]) -> Result<String, PageError> {
    let text = any_text(field, bytes)?;
    match text.bytes().next() {
        None => Err(problem(field, TextProblem::Empty)),
        Some(b'/') => Ok(text),
        Some(_) => Err(problem(field, TextProblem::NotAbsolute)),
    }
}

/// Letters, digits and `. _ : + - @`, never empty: names of candidates and trials.
fn name_text(field: &'static str, bytes: &[u8]) -> Result<String, PageError> {
    let text = of(field, bytes, |byte| byte.is_ascii_alphanumeric() || b"._:+-@".contains(&byte))?;
    if text.is_empty() { Err(problem(field, TextProblem::Empty)) } else { Ok(text) }
}

/// Hexadecimal digits and dashes, or empty: build-ids and boot ids.
fn hex_text(field: &'static str, bytes: &[u8]) -> Result<String, PageError> {
    of(field, bytes, |byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn of(field: &'static str, bytes: &[u8], may: impl Fn(u8) -> bool) -> Result<String, PageError> {
    let bytes = closed(field, bytes)?;
    if bytes.iter().all(|&byte| may(byte)) {
        Ok(bytes.iter().copied().map(char::from).collect())
    } else {
        Err(problem(field, TextProblem::Charset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(result: Result<String, PageError>) -> TextProblem {
        match result {
            Err(PageError::Text { problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bytes_after_the_nul_are_ignored() {
        assert_eq!(name_text("f", b"jemalloc:mem\0\x01junk").unwrap(), "jemalloc:mem");
        assert_eq!(hex_text("f", b"\0zz").unwrap(), "");
        assert_eq!(path_text("f", b"/usr/bin/python3.11\0").unwrap(), "/usr/bin/python3.11");
    }

    #[test]
    fn each_problem_of_a_text_is_reported() {
        assert_eq!(why(free_text("f", b"open")), TextProblem::Unterminated);
        assert_eq!(why(free_text("f", b"")), TextProblem::Unterminated);
        assert_eq!(why(free_text("f", b"a\x1b[31m\0")), TextProblem::Control);
        assert_eq!(why(free_text("f", "a\u{85}b\0".as_bytes())), TextProblem::Control);
        assert_eq!(why(path_text("f", b"\0")), TextProblem::Empty);
        assert_eq!(why(path_text("f", b"bin/true\0")), TextProblem::NotAbsolute);
        assert_eq!(why(name_text("f", b"\0")), TextProblem::Empty);
        assert_eq!(why(name_text("f", b"../x\0")), TextProblem::Charset);
        assert_eq!(why(hex_text("f", b"xyz\0")), TextProblem::Charset);
    }

    #[test]
    fn names_of_files_may_hold_control_characters() {
        assert_eq!(path_text("f", b"/opt/a\nb\0").unwrap(), "/opt/a\nb");
        assert_eq!(any_text("f", b"-c a\x1b\tb\0").unwrap(), "-c a\x1b\tb");
        assert_eq!(why(any_text("f", b"open")), TextProblem::Unterminated);
    }

    #[test]
    fn paths_that_are_not_utf8_are_kept_readable() {
        assert_eq!(path_text("f", b"/opt/caf\xe9\0").unwrap(), "/opt/caf\u{fffd}");
    }
}
