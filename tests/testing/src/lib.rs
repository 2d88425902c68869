// SPDX-License-Identifier: Apache-2.0
//! Shared by the Rust tests of several crates.

use std::io::Write as _;

/// Prints that this test, or a part of it, cannot run here, and why. It ends a test: `return skipped("no
/// network")`.
///
/// Cargo's harness has no result of that kind and hides what passed tests print. So the line goes past the
/// harness, and `tests/all` counts it.
pub fn skipped(why: &str) {
    let thread = std::thread::current(); // the harness names it after the test
    let line = format!("SKIPPED: {}: {why}\n", thread.name().unwrap_or("a test"));
    let _ = std::io::stderr().write_all(line.as_bytes());
}
