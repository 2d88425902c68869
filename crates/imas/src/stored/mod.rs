// SPDX-License-Identifier: Apache-2.0
//! Programs of the store: finished trials into it, and the program that the user means out of it.

pub(crate) mod harvest;
pub(crate) mod profile;
