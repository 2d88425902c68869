// SPDX-License-Identifier: Apache-2.0
//! Making trial pages before a start, and telling which are finished.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use imas_abi::{PageHeader, page_kind};
use nix::time::{ClockId, clock_gettime};
use zerocopy::{FromZeros, IntoBytes};

use crate::process;
use crate::program::Program;

/// Contents of a page about the start that it belongs to.
#[derive(Debug, Clone)]
pub struct Ticket<'a> {
    /// Counted by the hook ([`page_kind::TRIAL`]), or only watched by the guard ([`page_kind::FLIGHT`]).
    pub kind: u32,
    /// Unique over all trials.
    pub trial_id: &'a str,
    /// Name of the candidate.
    pub candidate: &'a str,
    /// Empty where the process itself notes what serves, else [`imas_core::sample::MEASURED_OUTSIDE`].
    pub served: &'a str,
    /// The program that is started.
    pub program: &'a Program,
    /// Build-id of the program, if it has one.
    pub build_id: &'a str,
    /// The process that will run it.
    pub pid: u32,
}

/// Why no page could be made; the start goes on without.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum PageFileError {
    /// The file system refused.
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: not a folder of this user with mode 0700", .0.display())]
    Untrusted(PathBuf),
    #[error("{0} is too long for a trial page")]
    TooLong(&'static str),
    #[error("/proc cannot be read: {0}")]
    Proc(#[from] procfs::ProcError),
}

/// The folder of this user, on tmpfs: `$XDG_RUNTIME_DIR/imas`, else `/dev/shm/imas-UID`. Each store has a folder for
/// its pages in it.
///
/// # Errors
/// When it cannot be made, or what is there is not this user's alone.
pub fn folder() -> Result<PathBuf, PageFileError> {
    let path = place();
    private_folder(&path)?;
    Ok(path)
}

/// Path of the folder that [`folder`] makes; nothing is made here.
#[must_use]
pub fn place() -> PathBuf {
    match runtime_folder() {
        Some(folder) => folder.join("imas"),
        None => PathBuf::from(format!("/dev/shm/imas-{}", nix::unistd::getuid().as_raw())),
    }
}

/// The folder in it for the pages of the starts that a store decided: no other store takes them.
///
/// # Errors
/// As [`folder`].
pub fn folder_of_store(store: &Path) -> Result<PathBuf, PageFileError> {
    folder()?;
    let path = place_of_store(store);
    private_folder(&path)?;
    Ok(path)
}

/// Path of the folder that [`folder_of_store`] makes; nothing is made here.
#[must_use]
pub fn place_of_store(store: &Path) -> PathBuf {
    place().join(store_folder_name(store))
}

/// The name of that folder, made of the store's path.
#[must_use]
pub fn store_folder_name(store: &Path) -> String {
    format!("store-{:016x}", crate::c_bytes::fnv64(store.as_os_str().as_encoded_bytes()))
}

/// The folder of this user's session, `$XDG_RUNTIME_DIR`. After sudo or su the variable may name another
/// user's folder. That one is not used: our folder in it would lock its owner out, and root would write where
/// the owner can put a link.
#[must_use]
pub fn runtime_folder() -> Option<PathBuf> {
    let folder =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute())?;
    is_own_folder(&folder).then_some(folder)
}

fn is_own_folder(folder: &Path) -> bool {
    let about = std::fs::metadata(folder);
    about.is_ok_and(|about| about.is_dir() && about.uid() == nix::unistd::getuid().as_raw())
}

/// Makes the folder if it is missing, and checks that no other user has access to it.
///
/// # Errors
/// As [`folder`].
pub fn private_folder(path: &Path) -> Result<(), PageFileError> {
    let io = |error| PageFileError::Io { path: path.to_owned(), error };
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(io(error)),
        _ => {}
    }
    check_private(path)
}

/// Checks that the folder is this user's and that no other user has access to it.
///
/// # Errors
/// When it is not there, or not this user's alone.
pub fn check_private(path: &Path) -> Result<(), PageFileError> {
    let io = |error| PageFileError::Io { path: path.to_owned(), error };
    let about = std::fs::symlink_metadata(path).map_err(io)?;
    let ours = about.is_dir() && about.uid() == nix::unistd::getuid().as_raw() && about.mode() & 0o077 == 0;
    if ours { Ok(()) } else { Err(PageFileError::Untrusted(path.to_owned())) }
}

/// Makes the page of one start, armed, and returns its path. All its space is reserved, so that writing into
/// the mapping cannot fail later.
///
/// # Errors
/// When the file cannot be made or filled. No file remains then.
pub fn create(folder: &Path, ticket: &Ticket<'_>) -> Result<PathBuf, PageFileError> {
    let path = folder.join(format!("{}.page", ticket.trial_id));
    let header = header(ticket)?;
    let io = |error| PageFileError::Io { path: path.clone(), error };
    let file =
        OpenOptions::new().write(true).read(true).create_new(true).mode(0o600).open(&path).map_err(io)?;
    let written = fill(&file, &header);
    if written.is_err() {
        let _ = std::fs::remove_file(&path); // the reason to report is the first error
    }
    written.map_err(io)?;
    Ok(path)
}

fn fill(mut file: &File, header: &PageHeader) -> std::io::Result<()> {
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, u64::from(header.page_bytes))?;
    file.write_all(header.as_bytes())
}

fn header(ticket: &Ticket<'_>) -> Result<PageHeader, PageFileError> {
    let mut header = PageHeader::new_zeroed();
    header.magic = imas_abi::PAGE_MAGIC;
    header.version = imas_abi::PAGE_VERSION;
    header.kind = ticket.kind;
    let bytes =
        if ticket.kind == page_kind::TRIAL { imas_abi::TRIAL_PAGE_BYTES } else { imas_abi::HEADER_BYTES };
    header.page_bytes = u32::try_from(bytes).map_err(|_| PageFileError::TooLong("the page"))?;
    header.pid = ticket.pid;
    header.uid = nix::unistd::getuid().as_raw();
    header.process_start_ticks = process::start_ticks(ticket.pid)?;
    header.made_unix_ns = unix_ns();
    header.exit_status = -1;
    put(&mut header.boot_id, &process::boot_id()?, "the boot id")?;
    put(&mut header.trial_id, ticket.trial_id, "the trial id")?;
    put(&mut header.candidate, ticket.candidate, "the candidate's name")?;
    put(&mut header.served, ticket.served, "the name of what serves")?;
    if !ticket.served.is_empty() {
        // The kernel's account begins with the process, and not with its program.
        header.user_us = own_cpu_us();
    }
    put(&mut header.program, &ticket.program.path.to_string_lossy(), "the program's path")?;
    put(&mut header.detail, cut(&ticket.program.detail), "the program's detail")?;
    put(&mut header.build_id, ticket.build_id, "the build-id")?;
    header.armed = 1;
    Ok(header)
}

/// The detail is only shown and compared; a longer one is cut at a character.
fn cut(detail: &str) -> &str {
    let most = imas_abi::DETAIL_BYTES - 1;
    let end = (0..=most.min(detail.len())).rev().find(|&end| detail.is_char_boundary(end));
    &detail[..end.unwrap_or(0)]
}

fn put(field: &mut [u8], text: &str, what: &'static str) -> Result<(), PageFileError> {
    crate::c_bytes::put(field, text.as_bytes()).ok_or(PageFileError::TooLong(what))
}

fn own_cpu_us() -> u64 {
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    u64::try_from(used.as_micros()).unwrap_or(0)
}

fn unix_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// A new trial id: 32 hexadecimal digits from the kernel's random source.
///
/// # Errors
/// When /proc cannot be read.
pub fn new_trial_id() -> Result<String, PageFileError> {
    Ok(procfs::sys::kernel::random::uuid()?.replace('-', ""))
}

/// All pages in the folder, in the order of their names.
///
/// # Errors
/// When the folder cannot be read.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>, PageFileError> {
    let io = |error| PageFileError::Io { path: folder.to_owned(), error };
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if path.extension().is_some_and(|extension| extension == "page") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

/// Whether the process that owns a page will write no more into it: it is gone, its pid is another's by now,
/// or it has replaced its image by exec. `entered`: the injected code has begun to write; before that a
/// running process has the page still before it, whether it has it mapped or not.
#[must_use]
pub fn is_finished(page: &Path, pid: u32, start_ticks: u64, boot_id: &str, entered: bool) -> bool {
    let same_boot = process::boot_id().is_ok_and(|now| now == boot_id);
    if !same_boot || !process::is_running(pid, start_ticks) {
        return true;
    }
    entered && pid != std::process::id() && !process::maps(pid, page).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket<'a>(program: &'a Program, id: &'a str) -> Ticket<'a> {
        Ticket {
            kind: page_kind::TRIAL,
            trial_id: id,
            candidate: "jemalloc",
            served: "",
            program,
            build_id: "ab12",
            pid: std::process::id(),
        }
    }

    #[test]
    fn a_page_is_made_whole_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let program = Program { path: "/bin/true".into(), detail: String::new() };
        let path = create(folder.path(), &ticket(&program, "t1")).unwrap();
        let about = std::fs::metadata(&path).unwrap();
        assert_eq!(about.len(), imas_abi::TRIAL_PAGE_BYTES as u64);
        assert_eq!(about.mode() & 0o777, 0o600);
        assert!(about.blocks() * 512 >= about.len(), "space is reserved");
        assert_eq!(list(folder.path()).unwrap(), std::slice::from_ref(&path));
        assert!(create(folder.path(), &ticket(&program, "t1")).is_err(), "never overwritten");
    }

    #[test]
    fn a_page_that_does_not_fit_is_refused_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let long = Program { path: format!("/{}", "x".repeat(2000)).into(), detail: String::new() };
        assert!(matches!(create(folder.path(), &ticket(&long, "t")), Err(PageFileError::TooLong(_))));
        assert!(list(folder.path()).unwrap().is_empty());
        let wordy = Program { path: "/bin/true".into(), detail: "ä".repeat(2000) };
        assert!(create(folder.path(), &ticket(&wordy, "t")).is_ok());
    }

    #[test]
    fn a_folder_that_others_reach_into_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("imas");
        private_folder(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(private_folder(&path), Err(PageFileError::Untrusted(_))));
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path(), &link).unwrap();
        assert!(matches!(private_folder(&link), Err(PageFileError::Untrusted(_))));
    }

    #[test]
    fn a_session_of_another_user_is_not_ours() {
        let own = tempfile::tempdir().unwrap();
        assert!(is_own_folder(own.path()));
        assert!(!is_own_folder(&own.path().join("missing")));
        let (own_uid, theirs) = (nix::unistd::getuid().as_raw(), Path::new("/"));
        if own_uid != 0 {
            assert!(!is_own_folder(theirs));
        } else {
            std::os::unix::fs::chown(own.path(), Some(own_uid + 1), None).unwrap();
            assert!(!is_own_folder(own.path()));
        }
    }

    #[test]
    fn a_page_is_finished_when_its_process_is_gone() {
        let me = std::process::id();
        let start = process::start_ticks(me).unwrap();
        let boot = process::boot_id().unwrap();
        let page = Path::new("/no/such.page");
        assert!(!is_finished(page, me, start, &boot, true));
        assert!(is_finished(page, me, start + 1, &boot, false), "a reused pid");
        assert!(is_finished(page, me, start, "another-boot", false));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let child_start = process::start_ticks(pid).unwrap();
        child.wait().unwrap();
        assert!(is_finished(page, pid, child_start, &boot, false));
    }

    #[test]
    fn a_page_that_is_not_mapped_is_finished_only_once_entered() {
        let boot = process::boot_id().unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let start = process::start_ticks(child.id()).unwrap();
        let finished = |entered| is_finished(Path::new("/no/such.page"), child.id(), start, &boot, entered);
        let answers = (finished(false), finished(true));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(answers, (false, true), "on its way to our constructor, and replaced by exec");
    }
}
