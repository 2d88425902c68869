// SPDX-License-Identifier: Apache-2.0
//! Searches the settings of allocators for those that suit one program.
//!
//! The space is data ([`space`]). The search ([`search`]) asks for the figures of one point after the other:
//! a tree-structured Parzen estimator (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", 2011)
//! for each allocator, and successive halving between allocators (Jamieson, Talwalkar, 2016). Who measures
//! the points, and how, is the caller's part. Nothing here reads a file or starts a process.

pub mod found;
pub mod goal;
pub mod search;
pub mod space;
mod study;
