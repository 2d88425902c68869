// SPDX-License-Identifier: Apache-2.0
//! `imas kube rbac` and `imas kube daemonset`: what an administrator applies, as it lies in `manifests/`.

use anyhow::Result;
use imas_cli::output;

use crate::cli::DaemonsetArgs;

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
                        # --trim names, one waiting thread of a process calls malloc_trim now and then; it stands still for about a\n\
                        # millisecond. It has no right on the apiserver.";

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

#[cfg(test)]
mod tests {
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
}
