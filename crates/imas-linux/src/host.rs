// SPDX-License-Identifier: Apache-2.0
//! Facts about this machine, for the record beside every result; its boot, its clock, its pressure at this
//! moment, and the package of the distribution that a file belongs to.
//!
//! The boot id, as programs see it.
//!
//! Programs compare the index's boot id with the one in their own /proc. A sandboxed daemon may see another one:
//! containers get a boot id of their own by a mount over the kernel's file, and systemd's `ProtectKernelTunables` hides
//! that mount from a unit. So root, which is in no sandbox, writes the id below the run folder, at each boot and when
//! the machine is enabled.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use imas_core::decision::Conditions;
use procfs::{CpuInfo, CpuPressure, Current, LoadAverage, Meminfo, MemoryPressure, ProcResult};
use serde::{Deserialize, Serialize};

use crate::files::{self, StampedPath};
use crate::heap::libc::version_of_file;
use crate::process;

/// The machine a measurement was made on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Kernel name and release.
    pub kernel: String,
    /// Machine name of `uname -m`.
    pub machine: String,
    /// Model name of the first CPU.
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: u32,
    /// Main memory in bytes.
    pub memory_bytes: u64,
    /// Page size in bytes.
    pub page_bytes: u64,
    /// C library and its version, like `glibc 2.36`.
    pub libc: String,
    /// Setting of transparent huge pages: always, madvise or never; empty when unknown.
    pub transparent_huge_pages: String,
}

impl Host {
    /// Reads the facts about the machine; what cannot be read stays empty or zero.
    #[must_use]
    pub fn now() -> Self {
        let uname = rustix::system::uname();
        Self {
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            machine: uname.machine().to_string_lossy().into_owned(),
            cpu: cpu_model(),
            cpus: cpus(),
            memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
            page_bytes: page_bytes(),
            libc: libc_version(),
            transparent_huge_pages: transparent_huge_pages(),
        }
    }
}

/// State of the machine that may change which allocator is best: page size, transparent huge pages, CPUs.
/// Kept beside every sample and compared.
#[must_use]
pub fn machine_state() -> String {
    let cpus = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    format!("pages {}, huge {}, cpus {}", page_bytes(), transparent_huge_pages(), cpus.trim())
}

/// Page size of the kernel in bytes.
#[must_use]
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

fn cpu_model() -> String {
    CpuInfo::current().ok().and_then(|info| model_of(&info)).unwrap_or_default()
}

/// Model name of the first CPU. The kernel of ARM prints numbers in place of it.
fn model_of(info: &CpuInfo) -> Option<String> {
    let numbers = ["CPU implementer", "CPU part", "CPU variant", "CPU revision"];
    let known = numbers.iter().filter_map(|name| Some(format!("{name} {}", info.get_field(0, name)?)));
    let of_arm = || Some(known.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty());
    info.model_name(0).map(str::to_owned).or_else(of_arm)
}

/// Setting of transparent huge pages: always, madvise or never; empty when unknown.
#[must_use]
pub fn transparent_huge_pages() -> String {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = text.split(['[', ']']).nth(1).unwrap_or_default();
    chosen.to_owned()
}

/// The C library that `system` stands for, asked of `getconf`, which belongs to glibc itself.
#[must_use]
pub fn libc_version() -> String {
    let output = std::process::Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Most bytes of the C library's file.
const MOST_OF_LIBC: usize = 32 << 20;
/// The version of the C library, and the file that it was read from.
static RELEASE: Mutex<Option<(StampedPath, String)>> = Mutex::new(None);

/// Version of the machine's glibc, such as `2.36`; empty where it cannot be read. It is read again when the file has
/// changed: a library is upgraded while a daemon runs.
#[must_use]
pub fn glibc_release() -> String {
    let Some(file) = crate::catalogue::find_installed("libc.so.6") else { return String::new() };
    let mut known = RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, release)) = known.as_ref().filter(|(file, _)| file.is_unchanged()) {
        return release.clone();
    }
    let stamp = StampedPath::now(&file);
    let release = files::read_plain(&file, MOST_OF_LIBC).ok().and_then(|bytes| version_of_file(&bytes));
    let release = release.unwrap_or_default();
    *known = Some((stamp, release.clone()));
    release
}

/// Name below the run folder, which is root's and does not outlive a boot.
pub const FILE_NAME: &str = "boot-id";

/// Characters of a boot id: a UUID.
const LENGTH: usize = 36;

/// Writes down this process's view of the boot id, replacing the file by rename.
///
/// # Errors
/// When /proc cannot be read or the folder not written.
pub fn write_boot_id(run_dir: &Path) -> io::Result<()> {
    let id = process::boot_id().map_err(io::Error::other)?;
    let fresh = run_dir.join("boot-id.new");
    std::fs::write(&fresh, format!("{id}\n"))?;
    std::fs::rename(fresh, run_dir.join(FILE_NAME))
}

/// The boot id that programs see: as root wrote it down, else as this process sees it.
///
/// # Errors
/// When nothing sound was written down and /proc cannot be read.
pub fn boot_id_of_programs(run_dir: &Path) -> ProcResult<String> {
    let written = files::read_plain(&run_dir.join(FILE_NAME), 2 * LENGTH).unwrap_or_default();
    let id = std::str::from_utf8(&written).unwrap_or_default().trim();
    let sound = id.len() == LENGTH && id.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    if sound { Ok(id.to_owned()) } else { process::boot_id() }
}

/// Seconds since the epoch; 0 when the clock is set before it.
#[must_use]
pub fn now_unix_s() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// Why the conditions could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConditionsError {
    /// /proc is missing or unreadable.
    #[error("/proc cannot be read: {0}")]
    Proc(#[from] procfs::ProcError),
    /// The kernel is too old to report it.
    #[error("/proc/meminfo has no MemAvailable")]
    NoMemAvailable,
}

/// Load, run queue, CPUs, memory and waiting of the whole machine; [`crate::control_group::narrowed`] adds
/// what limits this process.
///
/// # Errors
/// When /proc cannot be read.
pub fn conditions() -> Result<Conditions, ConditionsError> {
    let load = LoadAverage::current()?;
    let memory = Meminfo::current()?;
    let pressure = MemoryPressure::current().ok();
    Ok(Conditions {
        load5: f64::from(load.five),
        cpus: online(),
        mem_available_bytes: memory.mem_available.ok_or(ConditionsError::NoMemAvailable)?,
        mem_total_bytes: Some(memory.mem_total),
        running: Some(load.cur.saturating_sub(1)),
        cpu_some_pct: CpuPressure::current().ok().map(|psi| f64::from(psi.some.avg60)),
        memory_some_pct: pressure.as_ref().map(|psi| f64::from(psi.some.avg60)),
        memory_full_pct: pressure.as_ref().map(|psi| f64::from(psi.full.avg60)),
        group_memory_used: None,
        weight_before: None,
    })
}

/// One-minute load average; None when /proc cannot be read.
#[must_use]
pub fn load1() -> Option<f64> {
    LoadAverage::current().ok().map(|load| f64::from(load.one))
}

/// Memory that this process may still take without harm, in bytes: what the machine has available, or its
/// control group's limit leaves; 0 when unknown.
#[must_use]
pub fn room_bytes() -> u64 {
    let available = Meminfo::current().ok().and_then(|memory| memory.mem_available).unwrap_or(0);
    crate::control_group::memory_left().map_or(available, |left| left.min(available))
}

/// CPUs of the machine that are online, whatever this process may use of them: load and run queue are those
/// of the whole machine.
fn online() -> u32 {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    listed_cpus(list.trim()).unwrap_or_else(cpus)
}

/// Number of items that a list such as `0-3,6` names; None for what is no list.
fn listed_cpus(list: &str) -> Option<u32> {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').map(count).try_fold(0u32, |sum, part| sum.checked_add(part?)).filter(|&sum| sum > 0)
}

/// CPUs this process may run on; at least one.
#[must_use]
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

/// Version of the package that installed the file, in the distribution's notation. `None` if no package
/// manager lists the file.
#[must_use]
pub fn package_version(file: &Path) -> Option<String> {
    // Databases name the place a package was made for: /lib and /bin are often links into /usr since.
    let real = std::fs::canonicalize(file).ok()?;
    let before = real.strip_prefix("/usr").ok().map(|rest| Path::new("/").join(rest));
    let mut places = [Some(real), before].into_iter().flatten();
    places.find_map(|place| {
        let place = place.to_str()?.to_owned();
        of_dpkg(&place)
            .or_else(|| output_of("rpm", &["-qf", "--queryformat", "%{VERSION}-%{RELEASE}", &place]))
    })
}

fn of_dpkg(file: &str) -> Option<String> {
    let owner = output_of("dpkg-query", &["--search", file])?;
    let (package, _) = owner.split_once(": ")?;
    output_of("dpkg-query", &["--show", "--showformat=${Version}", package])
}

/// Standard output of a command that succeeds.
fn output_of(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use procfs::FromRead as _;

    use super::*;

    #[test]
    fn the_release_of_the_c_library_is_what_getconf_says() {
        let release = super::glibc_release();
        assert_eq!(super::libc_version(), format!("glibc {release}"));
        assert_eq!(super::glibc_release(), release);
    }

    #[test]
    fn cpus_without_a_name_are_known_by_numbers() {
        let of = |part: &str| {
            let first = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n";
            let text = format!("{first}CPU variant\t: 0x3\nCPU part\t: {part}\nCPU revision\t: 1\n\n");
            super::model_of(&procfs::CpuInfo::from_read(text.as_bytes()).unwrap())
        };
        let known = "CPU implementer 0x41, CPU part 0xd0c, CPU variant 0x3, CPU revision 1";
        assert_eq!(of("0xd0c").as_deref(), Some(known));
        assert_ne!(of("0xd40"), of("0xd0c"));
    }

    #[test]
    fn this_machine_is_described() {
        let host = super::Host::now();
        assert!(host.kernel.starts_with("Linux "));
        assert!(host.page_bytes >= 4096 && host.memory_bytes > 0);
        assert!(host.libc.starts_with("glibc 2."), "{}", host.libc);
    }

    #[test]
    fn a_boot_id_written_by_root_counts_if_it_is_valid() {
        let run = tempfile::tempdir().unwrap();
        let own = process::boot_id().unwrap();
        assert_eq!(boot_id_of_programs(run.path()).unwrap(), own, "nothing is written down");
        write_boot_id(run.path()).unwrap();
        assert_eq!(boot_id_of_programs(run.path()).unwrap(), own);
        let other = "0f3c6a3e-52b1-4a52-9f0e-0123456789ab";
        std::fs::write(run.path().join(FILE_NAME), format!("{other}\n")).unwrap();
        assert_eq!(boot_id_of_programs(run.path()).unwrap(), other);
        for bad in ["", "\n", "../../etc", &"x".repeat(LENGTH)] {
            std::fs::write(run.path().join(FILE_NAME), bad).unwrap();
            assert_eq!(boot_id_of_programs(run.path()).unwrap(), own, "{bad:?}");
        }
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        let of = super::listed_cpus;
        assert_eq!((of("0"), of("0-1"), of("0-3,6,8-9")), (Some(1), Some(2), Some(7)));
        assert_eq!((of(""), of("3-1"), of("x"), of("0-4294967295")), (None, None, None, None));
    }

    #[test]
    fn this_machine_answers() {
        let now = super::conditions().unwrap();
        assert!(now.cpus >= 1 && now.mem_available_bytes > 1 << 20 && now.load5 >= 0.0);
    }

    #[test]
    fn a_packaged_file_has_a_version_and_others_have_none() {
        assert_eq!(package_version(Path::new("/proc/self/exe")), None);
        assert_eq!(package_version(Path::new("/no/such/file")), None);
        if !Path::new("/usr/bin/dpkg-query").exists() {
            return imas_testing::skipped("versions of packages: dpkg-query is not installed");
        }
        assert!(
            package_version(Path::new("/bin/sh"))
                .is_some_and(|version| version.starts_with(char::is_numeric))
        );
    }
}
