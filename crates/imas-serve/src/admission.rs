// SPDX-License-Identifier: Apache-2.0
//! Which requests are answered. Nothing can be changed by one; still no page of another site may read an
//! answer through the user's browser, and no other user of this machine may read what concerns its owner.

use std::fmt;
use std::io::Read;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use imas_cli::connection_places::ConnectionPeer as _;
use imas_cli::message::Hinted;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::connections::Peer;
use crate::pages::PAGES;

/// Requests a second of one peer, in the long run.
const RATE: NonZeroU32 = NonZeroU32::new(50).unwrap();
/// Requests of one peer at once.
const BURST: NonZeroU32 = NonZeroU32::new(200).unwrap();
/// Bytes of path and query.
const LONGEST_URI: usize = 4096;

/// The rules of admission.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Values of `Host` under which we are reached, in lower case.
    hosts: Vec<String>,
    token: Option<Token>,
    limiter: DefaultKeyedRateLimiter<Peer>,
}

impl Admission {
    /// `listening` is the address, None for a UNIX socket. `names` are names of reverse proxies.
    pub(crate) fn new(listening: Option<SocketAddr>, names: &[String], token: Option<Token>) -> Self {
        let port = listening.map(|address| address.port());
        let mut known: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
        known.extend(listening.map(|address| match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        }));
        let with_port = |name: &String| port.map(|port| format!("{name}:{port}"));
        let mut hosts: Vec<String> = known.iter().filter_map(with_port).collect();
        // Over a UNIX socket a port means nothing, and HTTP's is left out.
        if port.is_none_or(|port| port == 80) {
            hosts.extend(known);
        }
        // A reverse proxy may be reached at any port of its own.
        hosts.extend(
            names.iter().flat_map(|name| [name.to_lowercase(), format!("{}:*", name.to_lowercase())]),
        );
        let limiter = RateLimiter::keyed(Quota::per_second(RATE).allow_burst(BURST));
        Self { hosts, token, limiter }
    }

    /// The answer to a request that is refused.
    fn refuse(&self, request: &Request, peer: Peer) -> Option<Response> {
        let headers = request.headers();
        if self.limiter.check_key(&peer).is_err() {
            return Some(refusal(StatusCode::TOO_MANY_REQUESTS, "too many requests; wait a second"));
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let refused =
                refusal(StatusCode::METHOD_NOT_ALLOWED, "nothing can be changed here: GET and HEAD only");
            return Some(([(header::ALLOW, "GET, HEAD")], refused).into_response());
        }
        if request.uri().path_and_query().is_some_and(|uri| uri.as_str().len() > LONGEST_URI) {
            return Some(refusal(StatusCode::URI_TOO_LONG, "the address is too long"));
        }
        if has_body(headers) {
            return Some(refusal(StatusCode::PAYLOAD_TOO_LARGE, "a request has no body here"));
        }
        if !self.is_own_host(headers) {
            return Some(refusal(StatusCode::MISDIRECTED_REQUEST, WRONG_HOST));
        }
        if !self.is_own_origin(headers, request.uri().path()) {
            return Some(refusal(StatusCode::FORBIDDEN, "pages of other sites get no answer"));
        }
        (!peer.is_trusted() && !self.has_token(headers)).then(|| self.unauthorized())
    }

    fn unauthorized(&self) -> Response {
        match &self.token {
            Some(_) => {
                let refused =
                    refusal(StatusCode::UNAUTHORIZED, "the token is asked for, as password or Bearer");
                ([(header::WWW_AUTHENTICATE, "Basic realm=\"imas\", charset=\"UTF-8\"")], refused)
                    .into_response()
            }
            None => refusal(StatusCode::FORBIDDEN, OTHER_USER),
        }
    }

    /// Whether the name by which we were reached is ours. A hostile page can make its own name lead here.
    fn is_own_host(&self, headers: &HeaderMap) -> bool {
        let mut all = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (all.next(), all.next()) else { return false };
        host.to_str().is_ok_and(|host| self.is_own_name(&host.to_lowercase()))
    }

    fn is_own_name(&self, host: &str) -> bool {
        let any_port = host.rsplit_once(':').map(|(name, _)| format!("{name}:*"));
        self.hosts.iter().any(|own| own == host || Some(own) == any_port.as_ref())
    }

    /// Whether the request comes from a page of ours. A followed link comes from none: it opens a page, and not
    /// in a frame of another site.
    fn is_own_origin(&self, headers: &HeaderMap, path: &str) -> bool {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?").to_lowercase());
        let is_own = |origin: String| {
            let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            host.is_some_and(|host| self.is_own_name(host))
        };
        let is_page = PAGES.iter().any(|(page, ..)| *page == path);
        let is_followed = || {
            is_page
                && text("sec-fetch-mode").as_deref() == Some("navigate")
                && text("sec-fetch-dest").as_deref() == Some("document")
        };
        let is_near = |site: String| matches!(site.as_str(), "same-origin" | "none") || is_followed();
        text("origin").is_none_or(is_own) && text("sec-fetch-site").is_none_or(is_near)
    }

    /// Whether the token was sent, as `Bearer` or as the password of `Basic`.
    fn has_token(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (Some(token), Some((scheme, value))) = (&self.token, sent.and_then(|sent| sent.split_once(' ')))
        else {
            return false;
        };
        match scheme.to_ascii_lowercase().as_str() {
            "bearer" => token.is(value.trim()),
            "basic" => STANDARD
                .decode(value.trim())
                .ok()
                .and_then(|pair| String::from_utf8(pair).ok())
                .is_some_and(|pair| pair.split_once(':').is_some_and(|(_, password)| token.is(password))),
            _ => false,
        }
    }

    /// Forgets peers that have been quiet.
    pub(crate) fn forget_quiet(&self) {
        self.limiter.retain_recent();
        self.limiter.shrink_to_fit();
    }
}

const WRONG_HOST: &str = "this name is not known to be ours; open it as localhost, or name it with --host when starting 'imas serve'";
const OTHER_USER: &str = "imas serve answers its own user and root; others need a token: see --token-file";

fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH).map(|length| length.as_bytes() != b"0");
    length.unwrap_or(false) || headers.contains_key(header::TRANSFER_ENCODING)
}

fn refusal(code: StatusCode, why: &'static str) -> Response {
    (code, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{why}\n")).into_response()
}

/// Answers what may be answered.
pub(crate) async fn admit(State(admission): State<Arc<Admission>>, request: Request, next: Next) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        return refusal(StatusCode::FORBIDDEN, "the user of the connection is not known");
    };
    match admission.refuse(&request, peer) {
        Some(refused) => refused,
        None => next.run(request).await,
    }
}

/// The fewest characters that cannot be guessed.
const LEAST: usize = 16;
/// Bytes of a token file that are read at most, more than a token ever has.
const MOST: u64 = 4096;

/// Only the hash is kept; it also gives all tokens one length, so that comparing takes the same time for
/// each.
#[derive(Clone)]
pub(super) struct Token([u8; 32]);

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
    pub(super) fn read(file: &Path) -> Result<Self> {
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
    pub(super) fn is(&self, offered: &str) -> bool {
        self.0.ct_eq(&Self::of(offered).0).into()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
