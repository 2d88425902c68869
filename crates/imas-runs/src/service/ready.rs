// SPDX-License-Identifier: Apache-2.0
//! Tests whether a server answers.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::service::tls;

/// The kind of test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ready {
    /// A connection to a port is accepted; host and port.
    Tcp(String),
    /// A connection to a socket in the file system is accepted.
    Unix(PathBuf),
    /// A GET is answered by a status below 400. With TLS any certificate is accepted.
    Url { address: String, path: String, is_tls: bool },
    /// A command succeeds.
    Command(String),
}

/// Time limit for an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Ready {
    /// Whether the text is no command: then the shell does not replace its variables.
    pub(crate) fn is_asked_by_us(text: &str) -> bool {
        !matches!(Self::parse(text), Self::Command(_))
    }

    /// Whether the text is `tcp:` with something that is no port. Variables are not replaced yet.
    pub(crate) fn has_wrong_port(text: &str) -> bool {
        let place = text.strip_prefix("tcp:").filter(|place| !place.contains('$'));
        let port = place.map(|place| place.rsplit_once(':').map_or(place, |(_, port)| port));
        port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0))
    }

    /// Returns the port that is asked; `None` of a socket in the file system and a command.
    pub(crate) fn port(&self) -> Option<u16> {
        let (Self::Tcp(address) | Self::Url { address, .. }) = self else { return None };
        address.rsplit_once(':')?.1.parse().ok()
    }

    /// The reason why the test cannot be made on this machine.
    pub(crate) fn obstacle(&self) -> Option<String> {
        let needs_curl = matches!(self, Self::Url { is_tls: true, .. });
        let why =
            "readiness by https:// is asked by curl, which is not installed: install it, or use tcp:PORT";
        (needs_curl && !tls::is_possible()).then(|| why.to_owned())
    }

    /// Parses the text of the definition. Variables are replaced already, except in a command.
    pub(crate) fn parse(text: &str) -> Self {
        if let Some(port) = text.strip_prefix("tcp:") {
            let address = if port.contains(':') { port.to_owned() } else { format!("127.0.0.1:{port}") };
            return Self::Tcp(address);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::Unix(path.into());
        }
        let schemes = [("http://", false, 80), ("https://", true, 443)];
        let url = schemes
            .into_iter()
            .find_map(|(scheme, is_tls, port)| text.strip_prefix(scheme).map(|rest| (rest, is_tls, port)));
        let Some((rest, is_tls, port)) = url else { return Self::Command(text.to_owned()) };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let address = if has_port(host) { host.to_owned() } else { format!("{host}:{port}") };
        Self::Url { address, path: format!("/{path}"), is_tls }
    }

    /// Whether the server answers now. Commands are not run here.
    pub(crate) fn answers(&self) -> bool {
        match self {
            Self::Tcp(address) => connect(address).is_some(),
            Self::Unix(path) => UnixStream::connect(path).is_ok(),
            Self::Url { address, path, is_tls: true } => {
                tls::answers(address, path, CONNECT_TIMEOUT.as_secs())
            }
            Self::Url { address, path, is_tls: false } => {
                get(address, path).is_some_and(|status| status < 400)
            }
            Self::Command(_) => false,
        }
    }
}

/// Whether the host is given with a port. In `[::1]` the colons are part of the address.
fn has_port(host: &str) -> bool {
    host.rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit()))
        && !host.ends_with(']')
}

fn connect(address: &str) -> Option<TcpStream> {
    let stream = address
        .to_socket_addrs()
        .ok()?
        .find_map(|one| TcpStream::connect_timeout(&one, CONNECT_TIMEOUT).ok())?;
    // A client port may connect to itself (TCP simultaneous open) while no server listens on it.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return None;
    }
    stream.set_read_timeout(Some(CONNECT_TIMEOUT)).ok()?;
    stream.set_write_timeout(Some(CONNECT_TIMEOUT)).ok()?;
    Some(stream)
}

/// The status of the answer.
fn get(address: &str, path: &str) -> Option<u16> {
    status(&mut connect(address)?, address, path)
}

fn status(stream: &mut (impl Read + Write), address: &str, path: &str) -> Option<u16> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).ok()?;
    let text = std::str::from_utf8(&head).ok()?;
    text.strip_prefix("HTTP/")?.split(' ').nth(1)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_kinds_are_distinguished() {
        let of = Ready::parse;
        let url = |address: &str, path: &str, is_tls| Ready::Url {
            address: address.into(),
            path: path.into(),
            is_tls,
        };
        assert_eq!(of("tcp:80"), Ready::Tcp("127.0.0.1:80".into()));
        assert_eq!(of("tcp:[::1]:80"), Ready::Tcp("[::1]:80".into()));
        assert_eq!(of("unix:/s"), Ready::Unix("/s".into()));
        assert_eq!(of("http://h:1/a/b"), url("h:1", "/a/b", false));
        assert_eq!(of("http://h"), url("h:80", "/", false));
        assert_eq!(of("https://h/x"), url("h:443", "/x", true));
        assert_eq!(of("https://[::1]/x"), url("[::1]:443", "/x", true));
        assert_eq!(of("https://[::1]:8443"), url("[::1]:8443", "/", true));
        let texts = ["tcp:$PORT", "unix:$WORK/s", "http://h:$PORT/", "https://h:$PORT/", "curl https://h"];
        assert_eq!(texts.map(Ready::is_asked_by_us), [true, true, true, true, false]);
        let places = ["tcp:1", "tcp:[::1]:80", "tcp:$PORT", "tcp:0", "tcp:99999", "tcp:h:", "tcp:", "true"];
        let wrong = [false, false, false, true, true, true, true, false];
        assert_eq!(places.map(Ready::has_wrong_port), wrong);
        assert_eq!(of("redis-cli ping"), Ready::Command("redis-cli ping".into()));
    }

    #[test]
    fn a_url_is_asked() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for status in ["204 No Content", "503 Busy"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).unwrap();
                stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).unwrap();
            }
        });
        let ready = Ready::parse(&format!("http://{address}/x"));
        assert!(ready.answers());
        assert!(!ready.answers());
        server.join().unwrap();
        assert!(!ready.answers(), "no server listens any more");
    }
}
