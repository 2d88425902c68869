// SPDX-License-Identifier: Apache-2.0
//! Answers with the headers that every one of them has.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

/// What the pages may load: our own style, script and data, and nothing else.
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
pub(crate) fn tag(body: &[u8]) -> String {
    let hash = Sha256::digest(body);
    let digits: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("W/\"{digits}\"")
}
