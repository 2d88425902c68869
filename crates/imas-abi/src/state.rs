// SPDX-License-Identifier: Apache-2.0
//! How far the injected code came (`enum imas_state`). Only ever grows.

/// Written by the launcher before exec; still so after death: died before our constructor.
pub const ARMED: u32 = 0;
/// The constructor began.
pub const ENTERED: u32 = 1;
/// The candidate serves, not counted (guard).
pub const ACTIVE: u32 = 2;
/// The candidate serves and is counted.
pub const TRIAL: u32 = 3;
/// Stood aside, see [`crate::pass_reason`].
pub const PASS: u32 = 4;
