// SPDX-License-Identifier: Apache-2.0
//! `/metrics`
use axum::response::Response;
use axum::response::IntoResponse;
pub(crate) async fn get() -> Response { "".into_response() }
