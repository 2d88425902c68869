// SPDX-License-Identifier: Apache-2.0
//! What this host is to its fleet, and what it publishes (docs/decisions/0032). [`crate::mailbox`] has the
//! files.

pub(crate) mod host;
pub(crate) mod message;
pub(crate) mod program;
pub(crate) mod settings;
