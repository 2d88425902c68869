// SPDX-License-Identifier: Apache-2.0
//! The verbs that measure a command or a server: `bench`, `doctor --noise`.

pub(crate) mod bench;
pub(crate) mod noise;
