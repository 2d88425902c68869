// SPDX-License-Identifier: Apache-2.0
//! Answers with the headers that every one of them has.

use std::sync::LazyLock;

use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use imas_report::page;
use sha2::{Digest, Sha256};

/// Content that the pages may load: our own style, script and data, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// On every answer, also on refusals.
const HEADERS: [(HeaderName, HeaderValue); 7] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    ),
];

/// Adds these headers to an answer.
pub(crate) async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    let cache = HeaderValue::from_static("private, no-cache");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(cache);
    response
}

/// The answer, or that it has not changed since the client has it.
pub(crate) fn tagged(headers: &HeaderMap, kind: &'static str, body: String) -> Response {
    let tag = tag(body.as_bytes());
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    let is_known = known.split(',').any(|one| one.trim() == tag || one.trim() == "*");
    let own = [(header::ETAG, tag)];
    match is_known {
        true => (StatusCode::NOT_MODIFIED, own).into_response(),
        false => (own, [(header::CONTENT_TYPE, kind)], body).into_response(),
    }
}

/// Weak, because the same answer is sent packed and unpacked.
fn tag(body: &[u8]) -> String {
    let hash = Sha256::digest(body);
    let digits: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("W/\"{digits}\"")
}

// Style and scripts. Their addresses contain a hash, so that a browser keeps them and never mixes versions.

const LIVE: &str = include_str!("assets/live.js");

/// A file.
struct Asset {
    name: String,
    kind: &'static str,
    text: String,
}

impl Asset {
    fn new(name: &str, ending: &str, kind: &'static str, text: String) -> Self {
        let digits: String = tag(text.as_bytes()).chars().filter(char::is_ascii_hexdigit).take(12).collect();
        Self { name: format!("{name}-{digits}.{ending}"), kind, text }
    }
}

static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    [
        Asset::new("style", "css", "text/css; charset=utf-8", page::stylesheet()),
        Asset::new("page", "js", SCRIPT, page::script().to_owned()),
        Asset::new("live", "js", SCRIPT, LIVE.to_owned()),
    ]
});

/// Address of the style.
pub(super) fn style() -> String {
    format!("/static/{}", ASSETS[0].name)
}

/// Addresses of the scripts.
pub(super) fn scripts() -> Vec<String> {
    ASSETS[1..].iter().map(|asset| format!("/static/{}", asset.name)).collect()
}

/// `/static/NAME`
pub(super) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => {
            let forever = [(header::CACHE_CONTROL, "private, max-age=31536000, immutable")];
            (forever, tagged(&headers, asset.kind, asset.text.clone())).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
