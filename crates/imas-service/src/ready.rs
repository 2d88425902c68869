// SPDX-License-Identifier: Apache-2.0
//! Tests whether a server answers.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The kind of test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ready {
    /// A connection to a port is accepted; host and port.
    Tcp(String),
    /// A connection to a socket in the file system is accepted.
    Unix(PathBuf),
    /// A GET is answered by a status below 400.
    Url { address: String, path: String },
    /// A command succeeds.
    Command(String),
}

/// Time limit for an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Ready {
    /// Parses the text of the definition. Variables are replaced already, except in a command.
    ///
    /// # Errors
    /// When a URL needs a command to test it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(port) = text.strip_prefix("tcp:") {
            let address = if port.contains(':') { port.to_owned() } else { format!("127.0.0.1:{port}") };
            return Ok(Self::Tcp(address));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if text.starts_with("https://") {
            return Err(format!(
                "ready: {text}: only http is asked; for https name a command, such as 'curl -kfs {text}'"
            ));
        }
        let Some(rest) = text.strip_prefix("http://") else { return Ok(Self::Command(text.to_owned())) };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
        Ok(Self::Url { address, path: format!("/{path}") })
    }

    /// Whether the server answers now. Commands are not run here.
    pub(crate) fn answers(&self) -> bool {
        match self {
            Self::Tcp(address) => connect(address).is_some(),
            Self::Unix(path) => UnixStream::connect(path).is_ok(),
            Self::Url { address, path } => get(address, path).is_some_and(|status| status < 400),
            Self::Command(_) => false,
        }
    }
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
    Some(stream)
}

/// The status of the answer.
fn get(address: &str, path: &str) -> Option<u16> {
    let mut stream = connect(address)?;
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
        let of = |text: &str| Ready::parse(text).unwrap();
        assert_eq!(of("tcp:80"), Ready::Tcp("127.0.0.1:80".into()));
        assert_eq!(of("tcp:[::1]:80"), Ready::Tcp("[::1]:80".into()));
        assert_eq!(of("unix:/s"), Ready::Unix("/s".into()));
        assert_eq!(of("http://h:1/a/b"), Ready::Url { address: "h:1".into(), path: "/a/b".into() });
        assert_eq!(of("http://h"), Ready::Url { address: "h:80".into(), path: "/".into() });
        assert_eq!(of("redis-cli ping"), Ready::Command("redis-cli ping".into()));
        assert!(Ready::parse("https://h/").is_err());
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
        let ready = Ready::parse(&format!("http://{address}/x")).unwrap();
        assert!(ready.answers());
        assert!(!ready.answers());
        server.join().unwrap();
        assert!(!ready.answers(), "no server listens any more");
    }
}
