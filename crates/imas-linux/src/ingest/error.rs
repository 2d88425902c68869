// SPDX-License-Identifier: Apache-2.0
//! Every way in which a page can be unfit.

use std::io;

/// Why the bytes are not a valid page.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum PageError {
    #[error("trial page has {0} bytes; a page has 4096 or 16384")]
    Size(usize),
    #[error("not a trial page: it starts with {0:#018x}")]
    Magic(u64),
    #[error("trial page has version {0}; this imas reads version {expected}", expected = imas_abi::PAGE_VERSION)]
    Version(u32),
    #[error("trial page says it has {header} bytes but has {file}")]
    SizeField {
        /// Size in the header, bytes.
        header: u32,
        /// Size of the file, bytes.
        file: usize,
    },
    #[error("trial page was never armed: the program was not started")]
    NotArmed,
    #[error("trial page field {field} cannot be {value}")]
    Range { field: &'static str, value: u64 },
    #[error("trial page field {field} {problem}")]
    Text { field: &'static str, problem: TextProblem },
    #[error("trial page is contradictory: {0}")]
    Contradiction(&'static str),
}

/// What is wrong with a string.
#[derive(thiserror::Error, Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum TextProblem {
    #[error("is not closed")]
    Unterminated,
    #[error("is empty")]
    Empty,
    #[error("holds a control character")]
    Control,
    #[error("holds a character that such a name cannot have")]
    Charset,
    #[error("is not an absolute path")]
    NotAbsolute,
}

/// Why a file does not give a page.
#[derive(thiserror::Error, Debug)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum ReadError {
    /// The file cannot be opened or read; a symbolic link is refused with ELOOP.
    #[error("cannot read the trial page: {0}")]
    Io(#[from] io::Error),
    #[error("the name of a trial page holds no slash")]
    Name,
    #[error("trial page is not a regular file")]
    NotRegular,
    #[error("trial page has {0} hard links; it must have one")]
    Links(u64),
    #[error("trial page belongs to uid {found}, not to uid {expected}")]
    Owner { found: u32, expected: u32 },
    /// The content of the file is not a page.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// Why pages do not add up.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum MergeError {
    #[error("no trial page to sum up")]
    Empty,
    #[error("trial page of {found} among those of {expected}")]
    OtherTrial { expected: String, found: String },
    #[error("trial pages of {0} contradict each other in candidate, kind or boot")]
    Contradiction(String),
    #[error("trial pages add up to more than can be")]
    Overflow,
}
