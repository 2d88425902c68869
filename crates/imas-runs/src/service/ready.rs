// SPDX-License-Identifier: Apache-2.0
//! Tests whether a server answers.
//!
//! Readiness by https is asked by curl: a TLS library of our own would make `imas` a seventh larger. The server is one that
//! `imas bench` has just started on this machine, usually with a certificate of its own. Its certificate is not checked:
//! nothing secret is sent, and nothing that it answers is believed but its status.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

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
        (needs_curl && !has_curl()).then(|| why.to_owned())
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
                answers_curl(address, path, CONNECT_TIMEOUT.as_secs())
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

/// Whether curl is there.
fn has_curl() -> bool {
    quiet(Command::new("curl").arg("--version"))
}

/// Whether a GET is answered by a status below 400 within the time, in seconds.
fn answers_curl(address: &str, path: &str, timeout_s: u64) -> bool {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--fail", "--insecure", "--noproxy", "*", "--output", "/dev/null", "--max-time"]);
    quiet(curl.arg(timeout_s.to_string()).arg(format!("https://{address}{path}")))
}

fn quiet(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion, version};

    use crate::service::ready::Ready;

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

    /// Answers as many connections as there are statuses, with a certificate of its own that names another
    /// host.
    fn serve(protocol: &'static SupportedProtocolVersion, statuses: &'static [&'static str]) -> u16 {
        let own = rcgen::generate_simple_self_signed(["another.invalid".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[protocol])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let config = std::sync::Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for status in statuses {
                let (stream, _) = listener.accept().unwrap();
                let connection = ServerConnection::new(std::sync::Arc::clone(&config)).unwrap();
                let mut stream = rustls::StreamOwned { conn: connection, sock: stream };
                if stream.read(&mut [0; 1024]).is_err() {
                    continue; // its time was over
                }
                let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).and_then(|()| stream.flush());
            }
        });
        port
    }

    #[test]
    fn a_server_with_a_certificate_of_its_own_is_asked() {
        if !has_curl() {
            return imas_testing::skipped("curl is not installed");
        }
        for protocol in [&version::TLS13, &version::TLS12] {
            let ready = |port: u16| Ready::parse(&format!("https://127.0.0.1:{port}/health"));
            let fine = ready(serve(protocol, &["200 OK"; 20]));
            // On a busy machine the handshake may take longer than an answer may.
            assert!((0..20).any(|_| fine.answers()), "{protocol:?}");
            assert!(!ready(serve(protocol, &["503 Busy"])).answers(), "it says that it is busy");
        }
    }

    #[test]
    fn what_speaks_no_tls_is_not_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        });
        assert!(!Ready::parse(&format!("https://localhost:{port}/")).answers());
    }
}
