// SPDX-License-Identifier: Apache-2.0
//! `imas fleet init`.

use std::path::Path;

use anyhow::Result;
use imas_cli::output;
use imas_fleet_agent::connection::Connection;
use imas_fleet_agent::server_files::{FleetPlan, OPERATOR};
use imas_fleet_agent::settings::FleetSettings;
use imas_fleet_agent::setup::{self, StreamSizes};

use crate::cli::InitArgs;

/// Writes files, or makes stream and bucket.
pub(crate) async fn run(args: &InitArgs, settings: &Path) -> Result<()> {
    match &args.certificates {
        Some(folder) => write_files(args, folder),
        None => make_streams(args, settings).await,
    }
}

fn write_files(args: &InitArgs, folder: &Path) -> Result<()> {
    let here = |at: u16| format!("127.0.0.1:{}", 4222 + at);
    let plan = FleetPlan {
        folder: folder.to_owned(),
        servers: args.servers.map_or_else(|| args.server.clone(), |number| (0..number).map(here).collect()),
        tenant: args.tenant.clone(),
        hosts: args.hosts.clone(),
        mergers: args.mergers.clone(),
        days: args.valid_days,
        disk_gib: args.disk_gib.into(),
    };
    plan.write()?;
    let operator = plan.member_folder(OPERATOR).join("fleet.toml");
    output::text(&format!(
        "written below {place}.\n\
         1. On each server, in its folder below {place}/server: nats-server -c nats-server.conf (after later changes: --signal reload)\n\
         2. Here: imas fleet init --settings {operator}\n\
         3. To each host, /etc/imas: the files of its folder below {place}/{tenant}. There:\n\
         \x20  chown root:imas-fleet /etc/imas/key.pem; chmod 640 /etc/imas/key.pem\n\
         \x20  [fleet] enabled = true in /etc/imas/imasd.toml; systemctl reload imasd; systemctl enable --now imas-fleet\n\
         Keep {place}/ca.key and {place}/{tenant}/operator to yourself.",
        place = folder.display(),
        operator = operator.display(),
        tenant = args.tenant,
    ))
}

async fn make_streams(args: &InitArgs, file: &Path) -> Result<()> {
    let settings = FleetSettings::read(file)?;
    let connection = Connection::open(&settings).await?;
    let bytes = i64::from(args.disk_gib) << 30;
    let sizes = StreamSizes {
        replicas: settings.replicas,
        days: args.keep_days,
        stream_bytes: bytes / 5 * 4,
        most_aggregates: args.most_aggregates,
        bucket_bytes: bytes / 5 - (64 << 20),
    };
    setup::make(&connection.jetstream(), sizes).await?;
    let mut host = format!("servers = {:?}\ntenant = {:?}\n", settings.servers, settings.tenant);
    host.push_str("host = \"...\"  # each host has its own\n");
    if settings.certificate.is_some() {
        host.push_str("ca = \"ca.pem\"\ncertificate = \"certificate.pem\"\nkey = \"key.pem\"\n");
    }
    output::text(&format!(
        "stream and bucket are there, {} copies. A host needs:\n\n{host}",
        settings.replicas
    ))
}
