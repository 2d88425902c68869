// SPDX-License-Identifier: Apache-2.0
//! Readiness by https, asked by curl: a TLS library of our own would make `imas` a seventh larger.
//!
//! The server is one that `imas bench` has just started on this machine, usually with a certificate of its
//! own. Its certificate is not checked: nothing secret is sent, and nothing that it answers is believed but
//! its status.

use std::process::{Command, Stdio};

/// Whether curl is there.
pub(crate) fn is_possible() -> bool {
    quiet(Command::new("curl").arg("--version"))
}

/// Whether a GET is answered by a status below 400 within the time, in seconds.
pub(crate) fn answers(address: &str, path: &str, timeout_s: u64) -> bool {
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
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion, version};

    use crate::service::ready::Ready;

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
        if !super::is_possible() {
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
