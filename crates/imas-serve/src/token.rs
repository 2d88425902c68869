// SPDX-License-Identifier: Apache-2.0
//! The secret that other users and other machines must know.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use imas_cli::message::Hinted;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The fewest characters that cannot be guessed.
const LEAST: usize = 16;
/// Bytes of a token file that are read at most, more than a token ever has.
const MOST: u64 = 4096;

/// Only the hash is kept; it also gives all tokens one length, so that comparing takes the same time for
/// each.
#[derive(Clone)]
pub(crate) struct Token([u8; 32]);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The first line of the file, which only its owner may read.
    ///
    /// # Errors
    /// When others may read it, or it has no token of some length.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let hint = "make one with: (umask 077; head -c 24 /dev/urandom | base64 >FILE)";
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
        let token = Self::of_file(file, credentials.as_deref().map(Path::new));
        token.map_err(|error| Hinted::error(format!("{}: {error:#}", file.display()), hint))
    }

    fn of_file(file: &Path, credentials: Option<&Path>) -> Result<Self> {
        let flags = nix::fcntl::OFlag::O_NONBLOCK.bits(); // a pipe must not hold us up
        let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(file)?;
        let about = opened.metadata()?;
        if !about.is_file() {
            bail!("no plain file");
        }
        let own = nix::unistd::geteuid().as_raw();
        // systemd lets nobody but the service into this folder. Its ACL for the service shows as a right of the
        // group.
        let is_credential = credentials.is_some() && file.parent() == credentials;
        let others = if is_credential { 0o037 } else { 0o077 };
        if about.mode() & others != 0 || (about.uid() != own && about.uid() != 0) {
            bail!("others may read or change this token: it must be yours, with mode 0600 or 0400");
        }
        let mut text = String::new();
        opened.take(MOST).read_to_string(&mut text).context("no text")?;
        let token = text.lines().next().unwrap_or_default().trim();
        if token.len() < LEAST {
            bail!("a token has at least {LEAST} characters");
        }
        Ok(Self::of(token))
    }

    fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// Whether the offered token is this one. The time taken says nothing about how much of it is right.
    pub(crate) fn is(&self, offered: &str) -> bool {
        self.0.ct_eq(&Self::of(offered).0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_long_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let write = |text: &str, mode| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&file)
        };
        let token = write("0123456789abcdef\nmore\n", 0o600).unwrap();
        assert!(token.is("0123456789abcdef") && !token.is("0123456789abcdee") && !token.is(""));
        assert!(write("0123456789abcdef\n", 0o640).is_err());
        let of_systemd = |credentials| Token::of_file(&file, credentials).is_ok();
        assert!(of_systemd(Some(folder.path())) && !of_systemd(Some(Path::new("/"))) && !of_systemd(None));
        assert!(write("0123456789abcdef\n", 0o644).is_err() && !of_systemd(Some(folder.path())));
        assert!(write("short\n", 0o600).is_err());
        assert!(Token::read(folder.path()).is_err());
        assert_eq!(format!("{token:?}"), "Token");
    }
}
