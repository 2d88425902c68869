// SPDX-License-Identifier: Apache-2.0
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
/// Per cent of the process's CPU time that giving pages back may cost, 1 to 100; absent: 1.
pub const GIVE_BACK_SHARE: &str = "IMAS_GIVE_BACK_SHARE";
/// `1`: do nothing at all.
pub const DISABLE: &str = "IMAS_DISABLE";
/// Another run folder than [`crate::RUN_FOLDER`], for a tree of one user's processes.
pub const RUN: &str = "IMAS_RUN";
/// The candidate's name, for the second exec: this process has been placed already.
pub const PLACED: &str = "IMAS_PLACED";
