// SPDX-License-Identifier: Apache-2.0
//! `imas-kube`, which `imas kube` runs: candidates for the pods of a Kubernetes cluster.
//!
//! - [`cli`]: what may be typed
//! - [`manifests`]: what a candidate is in a cluster: its name there and its environment
//! - [`manifests`]: the admission policy with its binding
//! - [`component`]: the same for clusters without such policies
//! - [`image`], [`image`]: an image with the libraries
//! - [`kubectl`]: the cluster, by the user's kubectl
//! - [`workload`], [`workload`]: what the pods of a workload get, and where that is written
//! - [`status`]: a share of the pods gets a candidate
//! - [`pods`], [`pods`], [`prometheus`]: the pods, the types of their nodes, their load
//! - [`verdict`]: the judge of them
//! - [`status`], [`settle`]: what pods have; what is proven, and what is taken back
//! - [`node`]: the containers of a node; [`look`]: a look at them; [`look`]: one of them, by [`group`], [`group`],
//!   [`look`]; [`metrics`]: by workload; [`metrics`], [`node`]: both for a collector; [`node`]: what gives memory back
//! - [`manifests`]: rights, and the observer of nodes, as files
//! - [`manifests`]: objects of a cluster, printed
//!
//! ```text
//! candidate, pods, workload -> policy, component -> yaml
//! oci -> image
//! group, pod_names, libc -> row -> look, gains -> metrics -> node; listen; look -> trims
//! kubectl, entry -> workload -> trial, settle -> yaml
//! kubectl -> pods -> nodes -> verdict -> settle; pods -> prometheus -> settle; pods -> status
//! ```

mod cli;
mod component;
mod group;
mod image;
mod kubectl;
mod look;
mod manifests;
mod metrics;
mod node;
mod pods;
mod prometheus;
mod settle;
mod status;
mod verdict;
mod workload;

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use imas_cli::manual;
use imas_engine::context::Context;
use imas_engine::entry::main_of;
use imas_engine::flags;

use crate::cli::{Cli, ClusterArgs, Command};
use crate::kubectl::Kubectl;

fn main() -> ExitCode {
    let read = || {
        manual::answer_completion(Cli::command);
        flags::read(|cli: &mut Cli| &mut cli.places)
    };
    main_of(read, run)
}

fn run(cli: Cli) -> Result<ExitCode> {
    let client =
        |args: &ClusterArgs| Kubectl { context: args.context.clone(), namespace: args.namespace.clone() };
    match cli.command {
        Command::Rbac => manifests::roles()?,
        Command::Daemonset(args) => manifests::observer(&args)?,
        Command::Node(args) => node::run(&args)?,
        Command::Image(args) => image::run(&args, &Context::new(&cli.places)?)?,
        Command::Try(args) => status::run_try(&args, &client(&args.cluster))?,
        Command::Status(args) => status::run(&args, &client(&args.cluster))?,
        Command::Settle(args) => return settle::run(&args, &client(&args.cluster)),
        Command::Policy(args) => manifests::print_policy(&args, &Context::new(&cli.places)?)?,
        Command::Component(args) => component::run(&args, &Context::new(&cli.places)?)?,
        Command::Completions { shell } => manual::completions(Cli::command(), shell)?,
        Command::Manpages { folder } => manual::manpages(Cli::command(), &folder)?,
    }
    Ok(ExitCode::SUCCESS)
}
