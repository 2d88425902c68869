// SPDX-License-Identifier: Apache-2.0
//! What machine this is, for the record beside every result.

use std::sync::{Mutex, PoisonError};

use procfs::{CpuInfo, Current, Meminfo};
use serde::{Deserialize, Serialize};

use crate::file_stamp::StampedPath;
use crate::heap::libc::version_of_file;
use crate::plain_file;

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
            cpus: crate::conditions::cpus(),
            memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
            page_bytes: page_bytes(),
            libc: libc_version(),
            transparent_huge_pages: transparent_huge_pages(),
        }
    }
}

/// What of the machine may change which allocator is best: page size, transparent huge pages, CPUs. Kept
/// beside every sample and compared.
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
    let release = plain_file::read(&file, MOST_OF_LIBC).ok().and_then(|bytes| version_of_file(&bytes));
    let release = release.unwrap_or_default();
    *known = Some((stamp, release.clone()));
    release
}

#[cfg(test)]
mod tests {
    use procfs::FromRead as _;

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
}
