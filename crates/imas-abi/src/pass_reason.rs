// SPDX-License-Identifier: Apache-2.0
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
