// SPDX-License-Identifier: Apache-2.0
//! Manifests that an administrator applies: `imas kube policy`, a `MutatingAdmissionPolicy` that gives pods a
//! candidate, and its binding; `imas kube rbac` and `imas kube daemonset`, as they lie in `manifests/`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use imas_cli::message::{self, Hinted};
use imas_cli::output;
use imas_core::printable;
use imas_engine::context::Context;
use imas_engine::lasting;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Libraries, Reach, Variables};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{DaemonsetArgs, PolicyArgs};
use crate::workload::NAME;

/// Namespace and image in the file of the node's observer.
const NAMESPACE: &str = "\"imas-node\"";
const IMAGE: &str = "\"IMAGE\"";

/// Differences where pods are trimmed.
const WITH_TRIMS: [(&str, &str); 5] = [
    ("It changes nothing, stops no\n# process, and has no right on the apiserver.", OF_TRIMS),
    ("# - the user root with two capabilities alone.", "# - the user root with three capabilities alone."),
    (
        "DAC_READ_SEARCH: some of these files belong to that user and are closed to others.\n",
        "DAC_OVERRIDE: some of these files belong to that user and are closed to others, and one is written. SYS_ADMIN\n\
         #   and no filter of its own: the kernel shows the filter of a pod's system calls (seccomp) to nobody else.\n",
    ),
    ("\"--listen\", \"0.0.0.0:9632\"", "\"--listen\", \"0.0.0.0:9632\", \"--trim\", \"NAMESPACES\""),
    (
        "[\"DAC_READ_SEARCH\", \"SYS_PTRACE\"]\n            seccompProfile:\n              type: RuntimeDefault",
        "[\"DAC_OVERRIDE\", \"SYS_ADMIN\", \"SYS_PTRACE\"]\n            seccompProfile:\n              type: Unconfined",
    ),
];
const OF_TRIMS: &str = "In pods of the namespaces that\n\
                        # --trim names, one waiting thread of a process calls malloc_trim now and then; it stands still for\n\
                        # a few milliseconds. It has no right on the apiserver.";

/// Prints the roles of people.
pub(crate) fn roles() -> Result<()> {
    output::text(include_str!("manifests/rbac.yaml"))
}

/// Prints what looks at each node.
pub(crate) fn observer(args: &DaemonsetArgs) -> Result<()> {
    output::text(&observer_of(&args.namespace, &args.image, &args.trim))
}

/// Names that the command line takes have no sign that ends a quotation. `trim`: namespaces whose pods are trimmed.
fn observer_of(namespace: &str, image: &str, trim: &[String]) -> String {
    let quoted = |text: &str| format!("\"{text}\"");
    let mut file = include_str!("manifests/daemonset.yaml").to_owned();
    if !trim.is_empty() {
        for (observes, trims) in WITH_TRIMS {
            file = file.replace(observes, trims);
        }
        file = file.replace("NAMESPACES", &trim.join(","));
    }
    file.replace(NAMESPACE, &quoted(namespace))
        .replace(IMAGE, &quoted(image))
        .replace("delete namespace imas-node", &format!("delete namespace {namespace}"))
}

/// Longest value of a label.
const LABEL_LENGTH: usize = 63;

/// Candidates by their names in the cluster, each with its variables.
pub(super) type Environments = BTreeMap<String, BTreeMap<String, String>>;

/// Name of a candidate in a cluster: a label's value has no colon, question mark or comma.
pub(super) fn label(candidate: &str) -> String {
    let good = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.');
    let label: String = candidate.chars().map(|sign| if good(sign) { sign } else { '.' }).collect();
    let is_edge = |sign: char| !sign.is_ascii_alphanumeric();
    let short: String = label.trim_start_matches(is_edge).chars().take(LABEL_LENGTH).collect();
    short.trim_end_matches(is_edge).to_owned()
}

/// The candidate of that name, as a container can have it.
pub(super) fn taken(context: &Context, name: &str) -> Result<CatalogueCandidate> {
    let candidate = lasting::usable_in_pods(context, name)?;
    if candidate.runtime.is_some() {
        return Err(Hinted::error(
            format!(
                "{name} is settings of a language runtime: what the pods set themselves would not win in all cases"
            ),
            format!("set them in the workload: imas env --candidate {name} --format kubernetes"),
        ));
    }
    lasting::can_be_taken(&candidate)?;
    Ok(candidate)
}

/// The environment of each candidate, where the libraries are found in the folder `at`.
pub(super) fn environments(context: &Context, names: &[String], at: &Path) -> Result<Environments> {
    let mut all = Environments::new();
    for name in names {
        let candidate = taken(context, name)?;
        let moved = lasting::moved(&candidate, at);
        let variables = lasting::changes(&Libraries::plain(at), &moved, Reach::Children, &Variables::new())?;
        let escaped = variables.into_iter().map(|(name, value)| (name, value.replace("$(", "$$(")));
        if all.insert(label(name), escaped.collect()).is_some() {
            bail!("{name}: another candidate has the same name in a cluster, {}", label(name));
        }
    }
    if all.is_empty() {
        return Err(Hinted::error("no candidate is named", "'imas list' shows them"));
    }
    Ok(all)
}

/// Says for which images the libraries of these candidates are, and on which nodes to measure anew.
pub(super) fn warn_of_places(context: &Context, names: &[String]) -> Result<()> {
    let candidates = names.iter().map(|name| taken(context, name)).collect::<Result<Vec<_>>>()?;
    message::warning(&format!(
        "for images with {} or later only: in one with musl (Alpine) or an older C library no program of the container would start",
        lasting::oldest_libc(&candidates, candidates.iter().flat_map(|one| lasting::files(context, one)))
    ));
    let cpus = imas_linux::host::cpus();
    let remarks = candidates.iter().filter_map(|one| lasting::remark_on_processors(one, cpus));
    remarks.for_each(|remark| message::warning(&remark));
    Ok(())
}

/// Prints the objects, each a document, below a comment of one line a sentence.
pub(super) fn print_documents(comment: &str, objects: &[Value]) -> Result<()> {
    let mut text: String = comment.lines().map(|line| format!("# {line}\n")).collect();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&document(object)?);
    }
    output::text(&text)
}

/// One object as a document. kubectl reads YAML 1.1, so words such as `on` are quoted. Where a sign steers a
/// terminal, the document is JSON, which is YAML too: its escapes mean the same sign to every reader.
pub(super) fn document(object: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(object).context("an object of the cluster as YAML")?;
    let is_printable = matches!(printable::text(&text), Cow::Borrowed(_));
    if is_printable {
        return Ok(text);
    }
    Ok(format!("{}\n", printable::json(&serde_json::to_string_pretty(object)?)))
}

// `imas kube policy`: the `MutatingAdmissionPolicy` that gives pods a candidate, and its binding.
//
// The policy holds every candidate with its environment, and the ConfigMap of a namespace no more than names
// of them with shares: who may write that ConfigMap can choose among what the cluster's administrator
// approved, and bring nothing of his own.
//
// The expressions lie in `policy/*.cel`. CEL has no chance and pods of one ReplicaSet are equal at admission,
// so `digits.cel` takes the first key of a map: the apiserver iterates over a map in an order that differs
// each time (the language that it is written in promises no order and starts anywhere). Twelve equal digits
// mean that this is no longer so, and then every pod is left alone.
//
// The init container is what the pod is: its user is the pod's, which a namespace may give, and `copier.cel` names one
// where the pod's is root alone. `bounds.cel` states ephemeral storage where all containers of the pod do: a LimitRange
// may ask it of each. Where they do not, a limit of ours would be the limit of the whole pod, and kubelet would evict it.

/// Variables of language runtimes that decide about their memory: a container that sets them has decided.
const OF_RUNTIMES: [&str; 7] = [
    "DOTNET_gcServer",
    "GLIBC_TUNABLES",
    "GOGC",
    "GOMEMLIMIT",
    "JAVA_TOOL_OPTIONS",
    "LD_PRELOAD",
    "NODE_OPTIONS",
];
/// Words of the ConfigMap that are no candidates.
const WORDS: [&str; 3] = ["container", "env-from", "withdrawn"];
/// Longest entry of the ConfigMap that is read: it bounds what an expression costs.
const LONGEST_ENTRY: usize = 1000;

const COMMENT: &str = "Pods with the label imas.io/workload: NAME, in namespaces with the label imas.io/policy: enabled, get what the\n\
    ConfigMap imas of their namespace says for NAME. If anything is wrong, a pod starts untouched.\n\
    To end it for every new pod: kubectl delete mutatingadmissionpolicybinding imas";

/// Prints the policy and its binding.
pub(super) fn print_policy(args: &PolicyArgs, context: &Context) -> Result<()> {
    let environments = environments(context, &args.given.with, &args.given.at)?;
    if let Some(word) = WORDS.iter().find(|word| environments.contains_key(**word)) {
        bail!("{word}: no candidate can have this name in a cluster");
    }
    let every: BTreeSet<_> = context
        .catalogue
        .candidates()
        .iter()
        .flat_map(|one| one.environment.iter())
        .map(|(name, _)| name.as_str())
        .collect();
    // A candidate with settings of the command line sets variables that no catalogue names.
    let given = environments.values().flat_map(|variables| variables.keys().map(String::as_str));
    let held: BTreeSet<_> = OF_RUNTIMES.into_iter().chain(every).chain(given).collect();
    warn_of_places(context, &args.given.with)?;
    print_documents(COMMENT, &[policy(args, &environments, &held)?, binding(&group(&args.api))])
}

fn policy(args: &PolicyArgs, environments: &Environments, held: &BTreeSet<&str>) -> Result<Value> {
    let variables = [
        ("candidates", literal(environments)?),
        ("held", literal(held)?),
        ("image", literal(&args.given.image)?),
        ("at", literal(&args.given.at)?),
        ("copied", literal(&!args.image_volume)?),
        ("workload", "object.metadata.labels[\"imas.io/workload\"]".to_owned()),
        ("words", include_str!("policy/words.cel").to_owned()),
        ("containers", include_str!("policy/containers.cel").to_owned()),
        ("shares", include_str!("policy/shares.cel").to_owned()),
        ("digits", include_str!("policy/digits.cel").to_owned()),
        ("place", include_str!("policy/place.cel").to_owned()),
        ("chosen", include_str!("policy/chosen.cel").to_owned()),
        ("own", include_str!("policy/own.cel").to_owned()),
        ("bounds", include_str!("policy/bounds.cel").to_owned()),
        ("why", include_str!("policy/why.cel").to_owned()),
    ];
    let variable = |(name, expression)| json!({ "name": name, "expression": expression });
    let variables = variables.map(variable);
    let mut mutations = vec![json!({
        "patchType": "ApplyConfiguration",
        "applyConfiguration": { "expression": include_str!("policy/mutation.cel") },
    })];
    if !args.image_volume {
        // An ApplyConfiguration cannot set lists such as the capabilities of a container. The draw is made once: this
        // reads the label that the first mutation gave.
        mutations.push(json!({
            "patchType": "JSONPatch",
            "jsonPatch": { "expression": include_str!("policy/copier.cel") },
        }));
    }
    let is_named = format!(
        "object.metadata.labels[\"imas.io/workload\"] in params.?data.orValue({{}}) && size(params.data[object.metadata.labels[\"imas.io/workload\"]]) <= {LONGEST_ENTRY}"
    );
    Ok(json!({
        "apiVersion": group(&args.api),
        "kind": "MutatingAdmissionPolicy",
        "metadata": { "name": NAME },
        "spec": {
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
            "matchConstraints": {
                "objectSelector": { "matchExpressions": [
                    { "key": "imas.io/workload", "operator": "Exists" },
                    { "key": "imas.io/candidate", "operator": "DoesNotExist" },
                ] },
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }],
            },
            "matchConditions": [{ "name": "the-workload-is-named", "expression": is_named }],
            "variables": variables,
            "mutations": mutations,
        },
    }))
}

/// The group of the objects, with its version.
fn group(version: &str) -> String {
    format!("admissionregistration.k8s.io/{version}")
}

fn binding(group: &str) -> Value {
    json!({
        "apiVersion": group,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": { "name": NAME },
        "spec": {
            "policyName": NAME,
            "paramRef": { "name": NAME, "parameterNotFoundAction": "Allow" },
            "matchResources": { "namespaceSelector": { "matchLabels": { "imas.io/policy": "enabled" } } },
        },
    })
}

/// A value as CEL writes it. JSON's strings, lists and maps are literals of CEL.
fn literal(value: &(impl Serialize + ?Sized)) -> Result<String> {
    Ok(serde_json::to_string(value)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_observer_gets_its_names() {
        let text = observer_of("watch", "registry.test/node:1", &[]);
        assert_eq!(text.matches("\"watch\"").count(), 2, "{text}");
        assert_eq!(text.matches("\"registry.test/node:1\"").count(), 1, "{text}");
        assert!(
            !text.contains(NAMESPACE) && !text.contains(IMAGE) && text.contains("delete namespace watch")
        );
    }

    #[test]
    fn what_trims_gets_what_that_takes_and_nothing_else() {
        let (plain, trims) =
            (observer_of("a", "b", &[]), observer_of("a", "b", &["shop".into(), "web".into()]));
        for (observes, changed) in WITH_TRIMS {
            assert_eq!(plain.matches(observes).count(), 1, "{observes}");
            assert!(changed.contains("NAMESPACES") || trims.contains(changed), "{changed}");
        }
        assert!(trims.contains("\"--trim\", \"shop,web\"") && !trims.contains("NAMESPACES"), "{trims}");
        let of = |text: &str, key: &str| text.lines().filter(|line| line.contains(key)).count();
        for key in ["add:", "hostPath:", "mountPath:", "readOnly: true", "hostPID:"] {
            assert_eq!(of(&plain, key), of(&trims, key), "{key}");
        }
    }

    #[test]
    fn a_name_becomes_the_value_of_a_label() {
        assert_eq!(label("glibc:lean"), "glibc.lean");
        assert_eq!(label("jemalloc?narenas:1"), "jemalloc.narenas.1");
        assert_eq!(label(&"x".repeat(90)).len(), LABEL_LENGTH);
        assert_eq!(label("a?"), "a");
        assert_eq!(label(&format!("{}:y", "x".repeat(62))), "x".repeat(62), "cut at the dot");
    }

    #[test]
    fn no_sign_of_a_document_steers_a_terminal() {
        for value in ["on", "a: b", "\u{1b}[2J", "line\nend", "x\u{2028}y"] {
            let text = document(&json!({ "data": { "web": value } })).unwrap();
            assert_eq!(printable::text(&text), text);
        }
        let object = json!({ "data": { "web": "x\u{202e}y" } });
        let text = document(&object).unwrap();
        assert_eq!(printable::text(&text), text);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), object);
    }
}
