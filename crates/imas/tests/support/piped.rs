// SPDX-License-Identifier: Apache-2.0
//! Programs that print a letter when they are ready, and end when their standard input is closed.

use std::io::Read;
use std::process::{Child, Command, Stdio};

/// Starts the program and waits until it is ready.
pub(crate) fn start(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

/// Lets the program end, and waits for it.
pub(crate) fn end(mut child: Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}
