// SPDX-License-Identifier: Apache-2.0
//! `imas kube rbac` and `imas kube daemonset`: what an administrator applies, as it lies in `manifests/`.

use anyhow::Result;
use imas_cli::output;

use crate::cli::DaemonsetArgs;

/// Namespace and image in the file of the node's observer.
const NAMESPACE: &str = "\"imas-node\"";
const IMAGE: &str = "\"IMAGE\"";

/// Prints the roles of people.
pub(crate) fn roles() -> Result<()> {
    output::text(include_str!("manifests/rbac.yaml"))
}

/// Prints what looks at each node.
pub(crate) fn observer(args: &DaemonsetArgs) -> Result<()> {
    output::text(&observer_of(&args.namespace, &args.image))
}

/// Names that the command line takes have no sign that ends a quotation.
fn observer_of(namespace: &str, image: &str) -> String {
    let quoted = |text: &str| format!("\"{text}\"");
    include_str!("manifests/daemonset.yaml")
        .replace(NAMESPACE, &quoted(namespace))
        .replace(IMAGE, &quoted(image))
        .replace("delete namespace imas-node", &format!("delete namespace {namespace}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_observer_gets_its_names() {
        let text = observer_of("watch", "registry.test/node:1");
        assert_eq!(text.matches("\"watch\"").count(), 2, "{text}");
        assert_eq!(text.matches("\"registry.test/node:1\"").count(), 1, "{text}");
        assert!(
            !text.contains(NAMESPACE) && !text.contains(IMAGE) && text.contains("delete namespace watch")
        );
    }
}
