// SPDX-License-Identifier: Apache-2.0
//! TLS to a server of which only one thing is asked: whether it answers yet.
//!
//! The server is one that `imas bench` has just started on this machine, usually with a certificate of its
//! own. Its certificate is not checked: nothing secret is sent, and nothing that it answers is believed but
//! its status.

use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};

/// TLS over a connection to `address`, which is `HOST:PORT`; None where the host is no name that TLS has.
pub(crate) fn over(stream: TcpStream, address: &str) -> Option<StreamOwned<ClientConnection, TcpStream>> {
    let (host, _) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).ok()?;
    let connection = ClientConnection::new(Arc::new(config()?), name).ok()?;
    Some(StreamOwned::new(connection, stream))
}

fn config() -> Option<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let anyone = Arc::new(Anyone(Arc::clone(&provider)));
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    Some(builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth())
}

/// Accepts every certificate.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion, version};

    use crate::ready::Ready;

    /// Answers as many connections as there are statuses, with a certificate of its own that names another
    /// host.
    fn serve(protocol: &'static SupportedProtocolVersion, statuses: &'static [&'static str]) -> u16 {
        let own = rcgen::generate_simple_self_signed(["another.invalid".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = std::sync::Arc::new(super::ring::default_provider());
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
                let mut stream = super::StreamOwned { conn: connection, sock: stream };
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).unwrap();
                stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).unwrap();
                stream.flush().unwrap();
            }
        });
        port
    }

    #[test]
    fn a_server_with_a_certificate_of_its_own_is_asked() {
        for protocol in [&version::TLS13, &version::TLS12] {
            let port = serve(protocol, &["200 OK", "503 Busy"]);
            let ready = Ready::parse(&format!("https://127.0.0.1:{port}/health"));
            assert!(ready.answers(), "{protocol:?}");
            assert!(!ready.answers(), "it says that it is busy");
        }
    }

    #[test]
    fn what_speaks_no_tls_is_not_ready() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        });
        assert!(!Ready::parse(&format!("https://localhost:{port}/")).answers());
        server.join().unwrap();
    }
}
