// SPDX-License-Identifier: Apache-2.0
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
