// SPDX-License-Identifier: Apache-2.0
//! Raw runs: one line of JSON a run, as `imas bench --export-runs` and the laboratory write them.

pub mod data;
pub mod dropped;
mod observed;
pub mod outputs;
mod server_line;
