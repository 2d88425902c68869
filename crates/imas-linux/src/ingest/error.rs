// SPDX-License-Identifier: Apache-2.0
//! Every way in which a page can be unfit.

use std::io;

/// Why the bytes are not a valid page.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
pub enum PageError {
    /// A size that is neither of the two sizes of a page.
    #[error("trial page has {0} bytes; a page has 4096 or 16384")]
    Size(usize),
    /// Other first eight bytes.
    #[error("not a trial page: it starts with {0:#018x}")]
    Magic(u64),
    /// Another layout.
    #[error("trial page has version {0}; this imas reads version {expected}", expected = imas_abi::PAGE_VERSION)]
    Version(u32),
    /// The size in the header is not that of the file, or not that of its kind.
    #[error("trial page says it has {header} bytes but has {file}")]
    SizeField {
        /// Size in the header, bytes.
        header: u32,
        /// Size of the file, bytes.
        file: usize,
    },
    /// The launcher did not finish it: nothing ran under it.
    #[error("trial page was never armed: the program was not started")]
    NotArmed,
    /// A number that its field cannot have.
    #[error("trial page field {field} cannot be {value}")]
    Range {
        /// Name in the header file.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// A string that its field cannot have.
    #[error("trial page field {field} {problem}")]
    Text {
        /// Name in the header file.
        field: &'static str,
        /// What is wrong.
        problem: TextProblem,
    },
    /// Figures that each are possible but not together.
    #[error("trial page is contradictory: {0}")]
    Contradiction(&'static str),
}

/// What is wrong with a string.
#[derive(thiserror::Error, Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextProblem {
    /// The field has no NUL.
    #[error("is not closed")]
    Unterminated,
    /// The field is empty where something must be.
    #[error("is empty")]
    Empty,
    /// A control character.
    #[error("holds a control character")]
    Control,
    /// A character that such a name does not have.
    #[error("holds a character that such a name cannot have")]
    Charset,
    /// A path that does not start at the root.
    #[error("is not an absolute path")]
    NotAbsolute,
}

/// Why a file does not give a page.
#[derive(thiserror::Error, Debug)]
pub enum ReadError {
    /// The file cannot be opened or read; a symbolic link is refused with ELOOP.
    #[error("cannot read the trial page: {0}")]
    Io(#[from] io::Error),
    /// A name with a directory in it, where one in the given directory is wanted.
    #[error("the name of a trial page holds no slash")]
    Name,
    /// A directory, device, pipe or socket.
    #[error("trial page is not a regular file")]
    NotRegular,
    /// Another name points to the same file.
    #[error("trial page has {0} hard links; it must have one")]
    Links(u64),
    /// The file or its header belongs to another user.
    #[error("trial page belongs to uid {found}, not to uid {expected}")]
    Owner {
        /// Uid that the file or its header has.
        found: u32,
        /// Uid that both should have.
        expected: u32,
    },
    /// The content of the file is not a page.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// Why pages do not add up.
#[derive(thiserror::Error, Debug, Clone, PartialEq, Eq)]
pub enum MergeError {
    /// There are no pages.
    #[error("no trial page to sum up")]
    Empty,
    /// The pages are not of one trial.
    #[error("trial page of {found} among those of {expected}")]
    OtherTrial {
        /// Trial of the first page.
        expected: String,
        /// Trial of the odd one.
        found: String,
    },
    /// The pages are of the same trial but not of the same candidate, kind or boot.
    #[error("trial pages of {0} contradict each other in candidate, kind or boot")]
    Contradiction(String),
    /// A sum too large for the store.
    #[error("trial pages add up to more than can be")]
    Overflow,
}
