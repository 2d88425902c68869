// SPDX-License-Identifier: Apache-2.0
//! The verbs that measure a command or a server: `bench`, `doctor --noise`.

pub(crate) mod bench;
pub(crate) mod export;
pub(crate) mod noise;
pub(crate) mod ticker;
