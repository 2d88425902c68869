// SPDX-License-Identifier: Apache-2.0
//! Which allocator serves a process, and who chose it. The answer is here alone: it is read from the files that the
//! process has mapped and from the environment it was started with.

pub mod candidate;
pub mod census;
pub mod chooser;
pub mod injected;
pub mod wanted;
