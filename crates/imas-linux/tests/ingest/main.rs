// SPDX-License-Identifier: Apache-2.0
//! Trial pages, honest and hostile, and what is made of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod files;
mod hostile;
mod pages;
mod trees;
