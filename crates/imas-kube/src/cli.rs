// SPDX-License-Identifier: Apache-2.0
//! Definition of the command line. No side effects.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueHint};
use imas_engine::amounts::{self, image_reference};
use imas_engine::flags::{JsonArgs, Places};

/// Candidates for the pods of a Kubernetes cluster.
///
/// A policy of the apiserver gives them; no process of IMAS runs in the cluster. Nothing is written to a
/// cluster without --write.
#[derive(Debug, Parser)]
#[command(
    name = "imas-kube",
    bin_name = "imas kube",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    after_help = "Examples:\n  imas kube image --with jemalloc,glibc:lean --out imas.tar   then: skopeo copy oci-archive:imas.tar:imas docker://REGISTRY/imas:1\n  imas kube policy --with jemalloc,glibc:lean --image REGISTRY/imas:1 | kubectl apply -f -\n  imas kube try web --with jemalloc --share 20%             what would be written\n  imas kube try web --with jemalloc --share 20% --write\n  imas kube status\n  imas kube settle web --for 3600 --write\n  imas kube settle web --prometheus http://localhost:9090 --requests 'sum by (pod) (rate(http_requests_total[5m]))'\n  imas kube component --with jemalloc --image REGISTRY/imas:1 --helm charts/imas\n  imas kube node --advise                                   what the workloads here could gain without a trial"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the admission policy and its binding: which candidates pods may get, and how
    Policy(PolicyArgs),
    /// For a cluster without admission policies: write components of Kustomize, or a chart of Helm
    Component(ComponentArgs),
    /// Print the least rights that people need, as roles of the cluster
    Rbac,
    /// Print what looks at each node all the time, as a DaemonSet, and what it must be allowed
    Daemonset(DaemonsetArgs),
    /// The containers of this node: whose memory is free, near its limit, or cannot be helped
    Node(NodeArgs),
    /// Write an image with the libraries of candidates, which any tool can push
    Image(ImageArgs),
    /// Give a share of a workload's pods a candidate, beside untouched ones
    Try(TryArgs),
    /// Which pods have which candidate, and how they are
    Status(StatusArgs),
    /// Compare the pods of each candidate with the untouched ones; take back what fails
    Settle(SettleArgs),
    /// Print shell completions
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write the man page into a folder
    #[command(hide = true)]
    Manpages { folder: PathBuf },
}

/// Candidates that pods may get, and where the libraries are.
#[derive(Debug, Args)]
pub(crate) struct GivenArgs {
    /// Candidates that pods may get, separated by commas: no other is ever given
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// The image with the libraries, as 'imas kube image' makes it
    #[arg(long, value_name = "REFERENCE", value_parser = image_reference)]
    pub(crate) image: String,
    /// Folder in the containers where the libraries are to be
    #[arg(long, value_name = "DIR", default_value = "/opt/imas", value_parser = folder)]
    pub(crate) at: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(flatten)]
    pub(crate) given: GivenArgs,
    /// Mount the image as a volume, on nodes that can, in place of an init container that copies the libraries
    /// into an emptyDir
    #[arg(long)]
    pub(crate) image_volume: bool,
    /// Version of the admission API: v1 of Kubernetes 1.36, v1beta1 of 1.34 and 1.35
    #[arg(long, value_name = "VERSION", default_value = "v1", value_parser = ["v1", "v1beta1"])]
    pub(crate) api: String,
}

#[derive(Debug, Args)]
pub(crate) struct ComponentArgs {
    #[command(flatten)]
    pub(crate) given: GivenArgs,
    /// A folder for a chart of Helm, which has all candidates
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "kustomize")]
    pub(crate) helm: Option<PathBuf>,
    /// A folder for components of Kustomize, one for each candidate and one for pods beside them
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "workload", requires = "container")]
    pub(crate) kustomize: Option<PathBuf>,
    /// Name of the Deployment, StatefulSet, DaemonSet, Job or CronJob, for --kustomize
    #[arg(long, value_name = "NAME", value_parser = plain_name)]
    pub(crate) workload: Option<String>,
    /// Container that gets the candidate, for --kustomize
    #[arg(long, value_name = "NAME", value_parser = plain_name)]
    pub(crate) container: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonsetArgs {
    /// An image with the program imas-kube in its path
    #[arg(long, value_name = "REFERENCE", value_parser = image_reference)]
    pub(crate) image: String,
    /// A namespace of its own
    #[arg(short, long, value_name = "NAME", default_value = "imas-node", value_parser = namespace)]
    pub(crate) namespace: String,
    /// The pods of these namespaces, separated by commas, give free pages back by themselves; with the rights that this takes
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = namespace)]
    pub(crate) trim: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct NodeArgs {
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// Where control groups are mounted
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/cgroup", value_hint = ValueHint::DirPath)]
    pub(crate) cgroups: PathBuf,
    /// Group below which kubelet and the runtimes have theirs: kubelet's cgroupRoot [default: the root, kubelet, or
    /// kubelet.slice]
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup_root: Option<String>,
    /// Kubelet's links to the logs of containers, which have their names
    #[arg(long, value_name = "DIR", default_value = "/var/log/containers", value_hint = ValueHint::DirPath)]
    pub(crate) logs: PathBuf,
    /// Print what each workload could gain without a trial
    #[arg(long)]
    pub(crate) advise: bool,
    /// Print the workloads as metrics (OpenMetrics), for a collector that reads files
    #[arg(long, conflicts_with_all = ["json", "advise"])]
    pub(crate) metrics: bool,
    /// Serve the metrics at http://ADDRESS/metrics until it is stopped
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["json", "advise", "metrics"])]
    pub(crate) listen: Option<SocketAddr>,
    /// Let processes in pods of these namespaces, separated by commas, give free pages back: each every ten minutes at most,
    /// where it has 32 MiB or more of them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = namespace, requires = "listen")]
    pub(crate) trim: Vec<String>,
    /// Time for which --listen gives the same figures again, without another look
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = duration)]
    pub(crate) every: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// Candidates whose libraries go into the image, separated by commas
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// A folder, or a file that ends in .tar: an image in the OCI layout
    #[arg(long, value_name = "DIR|FILE.tar", value_hint = ValueHint::AnyPath)]
    pub(crate) out: PathBuf,
    /// Name of the image in the layout
    #[arg(long, value_name = "TAG", default_value = "imas", value_parser = plain_name)]
    pub(crate) tag: String,
    /// Build for the other architecture, such as build/arm64 of 'make ARCH=arm64': the image is for both then
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) also: Option<PathBuf>,
    /// The copier for nodes without image volumes
    #[arg(long, value_name = "FILE", default_value_os_t = copier(), hide = true)]
    pub(crate) copier: PathBuf,
}

/// Which cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterArgs {
    /// Namespace of the workload [default: that of kubectl's context]
    #[arg(short, long, value_name = "NAME", value_parser = plain_name)]
    pub(crate) namespace: Option<String>,
    /// Context of kubectl's configuration
    #[arg(long, value_name = "NAME", value_parser = plain_name)]
    pub(crate) context: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TryArgs {
    /// The workload: web, deployment/web or statefulset/db
    pub(crate) workload: String,
    /// Candidates of the policy, separated by commas; each gets the share
    #[arg(long, value_name = "NAMES", required = true, value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// Share of the pods for each candidate; the rest stays untouched
    #[arg(long, value_name = "PERCENT", default_value = "20%", value_parser = share)]
    pub(crate) share: u8,
    /// The container that gets it, where a pod has several
    #[arg(long, value_name = "NAME", value_parser = plain_name)]
    pub(crate) container: Option<String>,
    /// What the container takes by envFrom sets none of our variables: you have looked
    #[arg(long)]
    pub(crate) env_from_is_clean: bool,
    /// Write it to the cluster; without this it is printed
    #[arg(long)]
    pub(crate) write: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SettleArgs {
    /// The workload: web, deployment/web or statefulset/db
    pub(crate) workload: String,
    /// How long to look
    #[arg(long = "for", value_name = "SECONDS", default_value = "600", value_parser = duration)]
    pub(crate) lasts: Duration,
    /// Time between two looks
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = duration)]
    pub(crate) every: Duration,
    #[command(flatten)]
    pub(crate) prometheus: PrometheusArgs,
    /// Look into pods, by a shell that kubectl starts there, whether the candidate serves in the process that holds the
    /// most memory: if not, it is taken back. It takes the right to create pods/exec
    #[arg(long)]
    pub(crate) look_inside: bool,
    /// Take back what fails, and give every new pod what is proven better; without it, that is only printed
    #[arg(long)]
    pub(crate) write: bool,
    /// Print the ConfigMap as it would be written, for GitOps, with the table as a comment; nothing is written
    #[arg(long, conflicts_with_all = ["write", "json"])]
    pub(crate) print: bool,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// A Prometheus that knows the load of the pods.
#[derive(Debug, Clone, Args)]
pub(crate) struct PrometheusArgs {
    /// A Prometheus that knows the load of the pods; curl asks it, and ~/.curlrc may have a login
    #[arg(long = "prometheus", value_name = "URL", value_parser = url)]
    pub(crate) url: Option<String>,
    #[command(flatten)]
    pub(crate) queries: QueryArgs,
}

/// Questions to Prometheus, in PromQL. The answers have the label `pod`.
#[derive(Debug, Clone, Args)]
pub(crate) struct QueryArgs {
    /// PromQL, requests of each pod in a second: CPU is compared by request then [default: what the ConfigMap
    /// imas has as _requests]
    #[arg(long, value_name = "QUERY", requires = "url")]
    pub(crate) requests: Option<String>,
    /// PromQL, latency of each pod: a candidate that is proven slower is not better [default: what the ConfigMap
    /// imas has as _latency]
    #[arg(long, value_name = "QUERY", requires = "url")]
    pub(crate) latency: Option<String>,
}

/// A name that a namespace can have.
fn namespace(text: &str) -> Result<String, String> {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_edge = text.starts_with('-') || text.ends_with('-');
    match !text.is_empty() && text.len() <= 63 && text.bytes().all(good) && !is_edge {
        true => Ok(text.to_owned()),
        false => Err("not a namespace's name".to_owned()),
    }
}

/// The copier of this installation: in `sbin` beside the folder of this program, or in the source tree's build.
fn copier() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let above = |count: usize| own.ancestors().nth(count).map(std::path::Path::to_owned).unwrap_or_default();
    let installed = above(2).join("sbin/imas-copy");
    if installed.exists() { installed } else { above(3).join("build/sbin/imas-copy") }
}

/// A share in per cent: `20%` or `20`.
fn share(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number.filter(|share| (1..=100).contains(share)).ok_or_else(|| "a share from 1% to 100%".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    amounts::seconds_above_0(text).map(Duration::from_secs_f64)
}

/// A name for kubectl that cannot be taken for an option.
fn plain_name(text: &str) -> Result<String, String> {
    match !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err("not a name".to_owned()),
    }
}

/// An address that curl cannot take for an option.
fn url(text: &str) -> Result<String, String> {
    let is_web = text.starts_with("http://") || text.starts_with("https://");
    match is_web && !text.contains(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err("an address that begins with http:// or https://".to_owned()),
    }
}

/// A folder that a container can mount and `LD_PRELOAD` can name.
fn folder(text: &str) -> Result<PathBuf, String> {
    let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    let path = PathBuf::from(text);
    let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    match path.is_absolute() && path.components().count() > 1 && text.bytes().all(good) && is_plain {
        true => Ok(path.components().collect()), // a slash at its end would hide what is mounted there
        false => Err("a whole path of letters, digits, '-', '_' and '.'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_folder_that_cannot_be_preloaded_is_refused() {
        for same in ["/opt/imas", "/opt//imas/", "/opt/./imas"] {
            assert_eq!(folder(same), Ok(PathBuf::from("/opt/imas")));
            assert_eq!(folder(same).unwrap().to_str(), Some("/opt/imas"));
        }
        for bad in ["opt", "/", "/.", "/a:b", "/a b", "/a/../b", "/$x"] {
            assert!(folder(bad).is_err(), "{bad}");
        }
    }
}
