// SPDX-License-Identifier: Apache-2.0
//! A process that ends with the test.

use std::process::Child;

/// The process, which is killed when this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
