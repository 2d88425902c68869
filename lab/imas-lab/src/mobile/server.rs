// SPDX-License-Identifier: Apache-2.0
//! The local server of the use case: the files of one folder, to this machine only.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use tiny_http::{Header, Request, Response, Server};

/// Server of the inputs, which serves until it is dropped.
pub(super) struct Files {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
    pub(super) port: u16,
}

impl Files {
    /// Serves the files of the folder, without folders below, on a free port of the loopback address.
    pub(super) fn serve(folder: &Path) -> Result<Self> {
        let server =
            Server::http("127.0.0.1:0").map_err(|error| anyhow::anyhow!("no local server: {error}"))?;
        let server = Arc::new(server);
        let port = server.server_addr().to_ip().context("the server has no address")?.port();
        let (shared, folder) = (Arc::clone(&server), folder.to_owned());
        let thread = std::thread::spawn(move || {
            for request in shared.incoming_requests() {
                let _ = answer(request, &folder); // the client may be gone
            }
        });
        Ok(Self { server, thread: Some(thread), port })
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it cannot panic on what it was given
        }
    }
}

fn answer(request: Request, folder: &Path) -> std::io::Result<()> {
    match wanted(request.url(), folder).and_then(|path| Some((File::open(&path).ok()?, path))) {
        None => request.respond(Response::empty(404)),
        Some((file, path)) => {
            let kind =
                if path.extension().is_some_and(|end| end == "html") { "text/html" } else { "image/bmp" };
            let header = Header::from_bytes("Content-Type", kind)
                .map_err(|()| std::io::Error::other("not a header"))?;
            request.respond(Response::from_file(file).with_header(header))
        }
    }
}

/// Path of a plain name in the folder: no way leads out of it.
fn wanted(url: &str, folder: &Path) -> Option<PathBuf> {
    let name = url.strip_prefix('/')?.split('?').next()?;
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-');
    (plain && !name.starts_with('.')).then(|| folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn get(port: u16, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn files_of_the_folder_are_served_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("page1.html"), "hello").unwrap();
        let files = Files::serve(folder.path()).unwrap();
        let page = get(files.port, "/page1.html");
        assert!(
            page.starts_with("HTTP/1.1 200") && page.contains("text/html") && page.ends_with("hello"),
            "{page}"
        );
        for path in ["/absent.html", "/../../etc/passwd", "/", "/..", "/.hidden"] {
            assert!(get(files.port, path).starts_with("HTTP/1.1 404"), "{path}");
        }
    }
}
