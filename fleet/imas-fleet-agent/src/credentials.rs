// SPDX-License-Identifier: Apache-2.0
//! A file of NATS credentials: a JWT that names the user, his rights and his account, and the nkey that
//! proves it. `nsc` and services that host NATS hand out such files.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use async_nats::{Auth, AuthError};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde::Deserialize;

/// Credentials of a user, as a file holds them. The key is not shown.
pub struct Credentials {
    jwt: String,
    key: KeyPair,
    claims: UserClaims,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("claims", &self.claims).finish_non_exhaustive()
    }
}

/// Claims of the JWT about its user.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct UserClaims {
    /// The user's public key.
    pub sub: String,
    /// The user's name, for people.
    #[serde(default)]
    pub name: String,
    /// Time from which the JWT is valid, seconds since 1970; absent: always was.
    pub nbf: Option<i64>,
    /// Time until which the JWT is valid, seconds since 1970; absent: for ever.
    pub exp: Option<i64>,
}

impl Credentials {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or holds no JWT of a user with its key.
    pub fn read(file: &Path) -> Result<Self> {
        let place = || file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(place)?;
        Self::parse(&text).with_context(place)
    }

    fn parse(text: &str) -> Result<Self> {
        let jwt = block(text, "JWT")
            .context("it has no NATS USER JWT: is it a file of credentials, as nsc makes them?")?;
        let seed = block(text, "SEED").context("it has no USER NKEY SEED after the JWT")?;
        let Ok(key) = KeyPair::from_seed(seed) else { bail!("its nkey is not readable") };
        let claims = claims(jwt).context("its JWT is not readable")?;
        if claims.sub != key.public_key() {
            bail!("its nkey is not that of the user in its JWT");
        }
        Ok(Self { jwt: jwt.to_owned(), key, claims })
    }

    /// Claims of the JWT.
    #[must_use]
    pub fn claims(&self) -> &UserClaims {
        &self.claims
    }

    /// The answer to a server that wants its `nonce` signed.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn answer(&self, nonce: &[u8]) -> Result<Auth, AuthError> {
        let mut auth = Auth::new();
        auth.signature = Some(self.key.sign(nonce).map_err(AuthError::new)?);
        auth.jwt = Some(self.jwt.clone());
        Ok(auth)
    }
}

/// The line below `-----BEGIN ... KIND-----`.
fn block<'a>(text: &'a str, kind: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.starts_with("---") && line.contains("BEGIN") && line.contains(kind))?;
    lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with('-'))
}

/// The middle part of the JWT. Its signature is up to the server.
fn claims(jwt: &str) -> Result<UserClaims> {
    let middle = jwt.split('.').nth(1).context("it has no claims")?;
    let text = URL_SAFE_NO_PAD.decode(middle)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(claims: &str, key: &KeyPair) -> String {
        let jwt = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims));
        let seed = key.seed().unwrap();
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             ************************* IMPORTANT *************************\nNKEYs are sensitive.\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }

    #[test]
    fn a_file_is_read_and_signs() {
        let key = KeyPair::new_user();
        let claims = format!(r#"{{"sub":"{}","name":"web-1","exp":7,"nats":{{}}}}"#, key.public_key());
        let read = Credentials::parse(&file(&claims, &key)).unwrap();
        assert_eq!(
            (read.claims().name.as_str(), read.claims().exp, read.claims().nbf),
            ("web-1", Some(7), None)
        );
        let answer = read.answer(b"nonce").unwrap();
        assert!(key.verify(b"nonce", &answer.signature.unwrap()).is_ok());
        assert!(answer.jwt.unwrap().starts_with("e30."));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_named() {
        let (key, other) = (KeyPair::new_user(), KeyPair::new_user());
        let good = file(&format!(r#"{{"sub":"{}"}}"#, key.public_key()), &key);
        let wrong = [
            (String::new(), "no NATS USER JWT"),
            ("-----BEGIN NATS USER JWT-----\n------END NATS USER JWT------\n".to_owned(), "no NATS USER JWT"),
            (good.replace("SEED", "S"), "no USER NKEY SEED"),
            (good.replace("\nSU", "\nS"), "nkey is not readable"),
            (good.replace("e30.", "e30.!"), "JWT is not readable"),
            (file(&format!(r#"{{"sub":"{}"}}"#, other.public_key()), &key), "not that of the user"),
        ];
        for (text, part) in wrong {
            let error = format!("{:#}", Credentials::parse(&text).err().unwrap());
            assert!(error.contains(part), "{part}: {error}");
            assert!(!error.contains(&key.seed().unwrap()), "{error}");
        }
    }
}
