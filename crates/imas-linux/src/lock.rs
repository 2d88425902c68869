// SPDX-License-Identifier: Apache-2.0
//! Locks of files: one session at a time.

use std::fs::{File, TryLockError};

/// Locks out every other session until the file is dropped; false where another has the lock.
///
/// # Errors
/// When the file cannot be locked.
pub fn take(file: &File) -> std::io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
