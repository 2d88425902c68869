// SPDX-License-Identifier: Apache-2.0
//! The least that a host, a merger or the operator needs on the servers.

use serde::Serialize;

use crate::connection::inbox_prefix;
use crate::names::{
    AGGREGATES, BUCKET, BUCKET_STREAM, DECISIONS, MERGERS, STREAM, host_token, subjects_of_host,
};

/// Role of a member in a fleet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FleetRole {
    /// A host.
    Host,
    /// A host that folds aggregates as well.
    Merger,
    /// The member that administers the fleet.
    Operator,
}

/// Name of a member on the bus, and its subjects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FleetRights {
    /// Token of the member on the bus, `host` in its settings: 26 characters.
    pub host: String,
    /// Subjects at which the member may publish.
    pub publish: Vec<String>,
    /// Subjects that the member may subscribe.
    pub subscribe: Vec<String>,
}

impl FleetRights {
    /// Rights of the member with this full name ([`crate::server_files::full_name`]) and role.
    #[must_use]
    pub fn of(full_name: &str, role: FleetRole) -> Self {
        let host = host_token(full_name);
        let (publish, subscribe) = match role {
            FleetRole::Operator => (operator_may_publish(&host), vec!["imas.>".to_owned()]),
            FleetRole::Merger => {
                let seen = vec![format!("{AGGREGATES}.*.*.*"), format!("{MERGERS}.*")];
                let publish = [host_may_publish(&host), merger_may_publish(&host)].concat();
                (publish, [vec![format!("{DECISIONS}.>")], seen].concat())
            }
            FleetRole::Host => (host_may_publish(&host), vec![format!("{DECISIONS}.>")]),
        };
        let subscribe = [vec![format!("{}.>", inbox_prefix(&host))], subscribe].concat();
        Self { host, publish, subscribe }
    }
}

/// Aggregates as itself, statistics by program, and what it is itself (`imas fleet doctor`).
fn host_may_publish(host: &str) -> Vec<String> {
    vec![
        subjects_of_host(host),
        format!("$JS.API.DIRECT.GET.{BUCKET_STREAM}.>"),
        "$SYS.REQ.USER.INFO".to_owned(),
    ]
}

fn merger_may_publish(host: &str) -> Vec<String> {
    vec![
        format!("{MERGERS}.{host}"),
        format!("$JS.API.DIRECT.GET.{STREAM}"),
        format!("$JS.API.STREAM.INFO.{STREAM}"),
        format!("$JS.API.STREAM.PURGE.{STREAM}"),
        format!("$JS.API.STREAM.MSG.GET.{BUCKET_STREAM}"),
        format!("$KV.{BUCKET}.*.*"),
    ]
}

fn operator_may_publish(host: &str) -> Vec<String> {
    let own = ["$JS.API.>".to_owned(), "imas.d.>".to_owned()];
    [host_may_publish(host), merger_may_publish(host), own.to_vec()].concat()
}
