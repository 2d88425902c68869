// SPDX-License-Identifier: Apache-2.0
//! The command line: what may be typed, its help, its man pages, what a shell completes.

pub(crate) mod bench_args;
pub(crate) mod cli;
pub(crate) mod complete;
pub(crate) mod examples;
pub(crate) mod lines_args;
pub(crate) mod man;
pub(crate) mod server_args;
pub(crate) mod service_args;
pub(crate) mod wrapper;
