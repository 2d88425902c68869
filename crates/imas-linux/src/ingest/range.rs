// SPDX-License-Identifier: Apache-2.0
//! The range of a figure in a page.

use crate::ingest::error::PageError;

/// Most memory believed, bytes: what five-level page tables can address.
pub(crate) const MOST_BYTES: u64 = 1 << 57;

/// A counter as it may be stored: at most `i64::MAX`.
pub(crate) fn counter(field: &'static str, value: u64) -> Result<u64, PageError> {
    if i64::try_from(value).is_ok() { Ok(value) } else { Err(PageError::Range { field, value }) }
}

pub(crate) fn bytes(field: &'static str, value: u64) -> Result<u64, PageError> {
    if value <= MOST_BYTES { Ok(value) } else { Err(PageError::Range { field, value }) }
}
