// SPDX-License-Identifier: Apache-2.0
//! Constants of the headers, a module for each enum: the names there have the enum's name in front.

pub mod detail_kind {

    //! Details that distinguish programs of one executable (`enum imas_detail_kind`).

    /// Nothing distinguishes the programs of this executable.
    pub const NONE: u32 = 0;
    /// Script or jar: device and inode of the file named on the command line.
    pub const FILE: u32 = 1;
    /// Module or main class: FNV-1a 64 of the text, and its length.
    pub const TEXT: u32 = 2;
    /// systemd unit: FNV-1a 64 of the unit's name, and its length.
    pub const UNIT: u32 = 3;
    /// The base name of the path that is executed, by the hash of the name and its length.
    pub const NAME: u32 = 4;
}

pub mod entry_flag {

    //! Bits of [`crate::IndexEntry::flags`] (`enum imas_entry_flag`).

    /// On the entry without detail: distinguished by what the interpreter is given to run.
    pub const INTERPRETER: u32 = 1;
    /// On the entry without detail: distinguished by jar or main class.
    pub const JAVA: u32 = 2;
    /// On the entry without detail: distinguished by systemd unit.
    pub const BY_UNIT: u32 = 4;
    /// Production starts write a flight page, so that a crash is seen.
    pub const FLIGHT: u32 = 8;
    /// May be placed even as process 1.
    pub const PID1: u32 = 16;
    /// On the entry without detail: programs of this executable are distinguished by the name by which it is started.
    pub const BY_NAME: u32 = 32;
}

pub mod env {

    //! Names of the environment variables: launcher to guard and hook.

    /// Absolute path of the page the launcher prepared for this process (its pid is in the header).
    pub const PAGE: &str = "IMAS_PAGE";
    /// `1`: leave the environment as it is, so that children run under the same candidate.
    pub const FOLLOW: &str = "IMAS_FOLLOW";
    /// `1`: every process of the tree counts into a page of its own, made beside [`PAGE`] (implies [`FOLLOW`]).
    pub const TREE: &str = "IMAS_TREE";
    /// `1` beside [`FOLLOW`]: the candidate is libc's malloc, so that no library follows ours in LD_PRELOAD.
    pub const ALONE: &str = "IMAS_ALONE";
    /// Prefix: `IMAS_WAS_<NAME>=<value>` is the value `<NAME>` had before the launcher changed it.
    pub const WAS: &str = "IMAS_WAS_";
    /// Colon-separated names that did not exist before the launcher set them.
    pub const UNSET: &str = "IMAS_UNSET";
    /// Set where needed to make the number of variables that are taken away again an even one. Go's runtime, for
    /// one, looks for the auxiliary vector after the NULL that ends the environment, and reads what it finds
    /// there in pairs.
    pub const PAD: &str = "IMAS_PAD";
    /// Colon-separated names of variables that libimas-settings.so answers getenv for, after they were taken away
    /// again.
    pub const SETTINGS: &str = "IMAS_SETTINGS";
    /// Before a name in [`SETTINGS`]: every question for it is answered. Without it, the first one is.
    pub const SETTINGS_LASTING: char = '+';
    /// Flags of the JVM that libimas-settings.so sets, with spaces between: `+Name`, `-Name`, `Name=number`.
    pub const JVM_FLAGS: &str = "IMAS_JVM_FLAGS";
    /// Beginnings of options, with spaces between: a JVM with one of them gets none of [`JVM_FLAGS`]. Only read beside
    /// [`FOLLOW`]: the launcher has compared what its own program was given.
    pub const JVM_YIELDS: &str = "IMAS_JVM_YIELDS";
    /// `1`: do nothing at all.
    pub const DISABLE: &str = "IMAS_DISABLE";
    /// Another run folder than [`crate::RUN_FOLDER`], for a tree of one user's processes.
    pub const RUN: &str = "IMAS_RUN";
    /// The candidate's name, for the second exec: this process has been placed already.
    pub const PLACED: &str = "IMAS_PLACED";
}

pub mod index_flag {

    //! Bits of [`crate::IndexHeader::flags`] (`enum imas_index_flag`).

    /// The stub does nothing in any process.
    pub const DISABLED: u32 = 1;
}

pub mod op {

    //! Operation classes of the paper (Algorithms 2 to 5), as indices into a page's arrays:
    //! calloc counts as malloc, every aligned form as memalign.

    /// malloc and calloc.
    pub const MALLOC: usize = 0;
    /// realloc.
    pub const REALLOC: usize = 1;
    /// memalign, posix_memalign, aligned_alloc, valloc, pvalloc.
    pub const MEMALIGN: usize = 2;
    /// free and its sized forms.
    pub const FREE: usize = 3;
}

pub mod page_kind {

    //! Purposes of a page (`enum imas_page_kind`).

    /// Page of a trial: libimas.so counts into it.
    pub const TRIAL: u32 = 1;
    /// Page of a flight: libimas-guard.so notes entry, fatal signal and clean exit only.
    pub const FLIGHT: u32 = 2;
}

pub mod pass_reason {

    //! Reasons for which the injected code left a program untouched (`enum imas_pass_reason`).

    /// No reason: the program was not left untouched.
    pub const NONE: u32 = 0;
    /// `IMAS_DISABLE=1` or /run/imas/disabled.
    pub const DISABLED: u32 = 1;
    /// The executable, or a library before us, defines malloc itself.
    pub const OWN_MALLOC: u32 = 2;
    /// Already under seccomp.
    pub const SECCOMP: u32 = 3;
    /// Finite `RLIMIT_AS`.
    pub const RLIMIT_AS: u32 = 4;
    /// `LD_AUDIT` is set.
    pub const LD_AUDIT: u32 = 5;
    /// Running under valgrind.
    pub const VALGRIND: u32 = 6;
    /// A sanitizer runtime is loaded.
    pub const SANITIZER: u32 = 7;
    /// The next malloc family was not found, or came from more than one object.
    pub const NO_ALLOCATOR: u32 = 8;
    /// The page is missing, foreign, of wrong size or version.
    pub const PAGE: u32 = 9;
    /// A child of the program under trial; counted only with `IMAS_TREE`.
    pub const NOT_THE_PROGRAM: u32 = 10;
    /// Process 1.
    pub const PID1: u32 = 11;
    /// The program calls functions of an allocator's own beside malloc.
    pub const INTERFACE: u32 = 12;
    /// The program defines a function that the candidate calls.
    pub const WRAPPED: u32 = 13;
    /// malloc was called while ld.so relocated, which most allocators cannot serve.
    pub const TOO_EARLY: u32 = 14;
    /// The program sets a filter of system calls by an instruction of its own, which nothing of ours sees.
    pub const OWN_FILTER: u32 = 15;
    /// Number of these reasons.
    pub const REASONS: u32 = 16;
}

pub mod state {

    //! How far the injected code came (`enum imas_state`). Only ever grows.

    /// Written by the launcher before exec; still so after death: died before our constructor.
    pub const ARMED: u32 = 0;
    /// The constructor began.
    pub const ENTERED: u32 = 1;
    /// The candidate serves, not counted (guard).
    pub const ACTIVE: u32 = 2;
    /// The candidate serves and is counted.
    pub const TRIAL: u32 = 3;
    /// Stood aside, see [`crate::pass_reason`].
    pub const PASS: u32 = 4;
}
