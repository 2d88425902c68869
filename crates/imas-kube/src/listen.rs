// SPDX-License-Identifier: Apache-2.0
//! Metrics by HTTP. Nothing of a request counts but its path, and who asks often gets the same answer again.

use std::io::{ErrorKind, Read as _, Result as IoResult, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_cli::connection_places::{ConnectionPlace, ConnectionPlaces, MostConnections, peer_of_address};
use imas_cli::message;

/// Most connections at a time: each is a thread. Nobody is trusted, and a collector asks once a minute.
const MOST: MostConnections = MostConnections { all: 64, of_others: 64, of_one: 16 };
/// Most bytes of a request.
const MOST_BYTES: usize = 8 << 10;
/// Longest time for a request to come, and for an answer to go.
const SLOWEST: Duration = Duration::from_secs(5);
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until the process ends. A text is made anew where the last one is older than `every`.
///
/// # Errors
/// Where nobody can listen at the address.
pub(crate) fn serve(
    address: SocketAddr,
    every: Duration,
    text: impl Fn() -> Result<String> + Sync,
) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("{address} cannot be listened at"))?;
    message::say(&format!("imas: metrics: http://{}/metrics", listener.local_addr()?));
    let last: Mutex<Option<(Instant, String)>> = Mutex::new(None);
    let newest = || -> Result<String> {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = last.as_ref().filter(|(made, _)| made.elapsed() < every) {
            return Ok(text.clone());
        }
        let text = text()?;
        *last = Some((Instant::now(), text.clone()));
        Ok(text)
    };
    let places = ConnectionPlaces::new(MOST);
    thread::scope(|threads| {
        for stream in listener.incoming().flatten() {
            let Some((stream, place)) = placed(stream, &places) else { continue };
            let newest = &newest;
            let answered = move || {
                let _ = answer(&stream, &place, newest); // the one who asked is gone
            };
            let _ = thread::Builder::new().spawn_scoped(threads, answered); // without a thread it is closed
        }
    });
    Ok(())
}

type Place = ConnectionPlace<IpAddr>;

/// The connection with its place; None where there is none, and it is closed. Where it has to leave, what reads it finds
/// its end.
fn placed(stream: TcpStream, places: &Arc<ConnectionPlaces<IpAddr>>) -> Option<(Arc<TcpStream>, Place)> {
    let peer = peer_of_address(stream.peer_addr().ok()?.ip());
    let stream = Arc::new(stream);
    let left = Arc::clone(&stream);
    let place = places.place(peer, move || drop(left.shutdown(Shutdown::Both)))?;
    Some((stream, place))
}

fn answer(stream: &TcpStream, place: &Place, newest: impl Fn() -> Result<String>) -> IoResult<()> {
    let head = request(stream)?;
    place.speaks();
    let is_ours = [&b"GET /metrics "[..], b"GET /metrics?"].iter().any(|start| head.starts_with(start));
    let (status, kind, body) = match is_ours.then(newest) {
        Some(Ok(text)) => ("200 OK", KIND, text),
        Some(Err(error)) => {
            message::warning(&format!("{error:#}"));
            ("500 Internal Server Error", "text/plain", "the node cannot be looked at\n".to_owned())
        }
        None => ("404 Not Found", "text/plain", "there is /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    send(stream, &(head + &body))
}

/// What is asked, up to the empty line.
fn request(mut stream: &TcpStream) -> IoResult<Vec<u8>> {
    let until = Instant::now() + SLOWEST;
    let (mut head, mut part) = (Vec::<u8>::new(), [0_u8; 1024]);
    while head.len() < MOST_BYTES && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.set_read_timeout(Some(rest(until)?))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            break;
        }
        head.extend_from_slice(&part[..count]);
    }
    Ok(head)
}

fn send(mut stream: &TcpStream, text: &str) -> IoResult<()> {
    let until = Instant::now() + SLOWEST;
    let mut bytes = text.as_bytes();
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(rest(until)?))?;
        let count = stream.write(bytes)?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Time that is left; none is an error.
fn rest(until: Instant) -> IoResult<Duration> {
    let rest = until.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one who asks gets, of a text that is made for it.
    fn asked(words: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        own.write_all(words.as_bytes()).unwrap();
        let (stream, place) = placed(stream, &ConnectionPlaces::new(MOST)).unwrap();
        answer(&stream, &place, || Ok("# EOF\n".to_owned())).unwrap();
        drop(place);
        drop(stream);
        let mut text = String::new();
        own.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn metrics_are_served_and_nothing_else() {
        let text = asked("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n# EOF\n"), "{text}");
        for other in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET /metricsx HTTP/1.1\r\n\r\n",
            "POST /metrics HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(asked(other).starts_with("HTTP/1.1 404 "), "{other}");
        }
    }
}
