// SPDX-License-Identifier: Apache-2.0
//! The parts by which recorded starts are replayed (docs/decisions/0033).
//!
//! ```text
//! Learner: a program wants it --offers--> a start is recorded --ended--> ReplayRunner: idle? --child--> predictions
//! ```
//! - [`settings`]: the section `[replay]`
//! - [`offers`]: the folders in which starts are recorded
//! - [`child`]: the child process

pub(crate) mod child;
pub(crate) mod offers;
pub(crate) mod settings;
