// SPDX-License-Identifier: Apache-2.0
//! A look into a pod by `kubectl exec`: whether its candidate serves in the process that holds the most memory.

use std::collections::BTreeMap;

use anyhow::Result;
use imas_core::printable;
use imas_linux::mapped_files::MappedFiles;
use imas_linux::serving::wanted::WantedLibraries;

use crate::kubectl::Kubectl;
use crate::pods::Pod;

/// A program younger than this may not have started what it becomes.
const YOUNG_S: u64 = 30;
/// Prints `= PAGES NAME` for each process but itself, and then the libraries that it has mapped, with nothing but a shell.
const SCRIPT: &str = r#"for p in /proc/[0-9]*; do
[ "$p" = "/proc/$$" ] || { read -r size pages rest <$p/statm && read -r name <$p/comm && echo "= $pages $name" &&
while read -r a b c d e file; do case $file in *.so*) echo "$file" ;; esac; done <$p/maps; } 2>/dev/null
done"#;

/// Looks into one ready pod of each candidate, each time into the one that was looked into least recently.
#[derive(Debug, Default)]
pub(crate) struct LookInside {
    /// Number of the look in which a pod was looked into, by its uid.
    looked: BTreeMap<String, u64>,
    looks: u64,
    /// Whether a look failed, which is said once.
    has_failed: bool,
}

impl LookInside {
    /// Notes in the pods what they lack. Returns the first error, for people.
    pub(crate) fn look(&mut self, kubectl: &Kubectl, pods: &mut [Pod]) -> Result<()> {
        self.looks += 1;
        let mut next = BTreeMap::<String, &mut Pod>::new();
        let is_old = |pod: &Pod| pod.is_ready && pod.age_s.is_some_and(|age_s| age_s >= YOUNG_S);
        for pod in pods.iter_mut().filter(|pod| pod.preload.is_some() && is_old(pod)) {
            let Some(candidate) = pod.candidate.clone() else { continue };
            let last = |pod: &Pod| self.looked.get(&pod.uid).copied();
            if next.get(&candidate).is_none_or(|known| last(pod) < last(known)) {
                next.insert(candidate, pod);
            }
        }
        let mut first = Ok(());
        for pod in next.into_values() {
            self.looked.insert(pod.uid.clone(), self.looks);
            match kubectl.exec(&pod.name, &pod.container, SCRIPT) {
                Ok(text) => pod.lacks = lacking(pod.preload.as_deref().unwrap_or_default(), &text),
                Err(error) if !self.has_failed => first = first.and(Err(error)),
                Err(_) => {}
            }
        }
        self.has_failed |= first.is_err();
        first
    }
}

/// The process that holds the most memory, where it lacks what is preloaded. The text is the pod's: whatever it says
/// decides about this pod's candidate alone.
fn lacking(preload: &str, text: &str) -> Option<String> {
    let wanted = WantedLibraries::of_preload(preload)?;
    let processes = text.split("= ").filter_map(|one| {
        let (head, files) = one.split_once('\n')?;
        let (pages, name) = head.split_once(' ')?;
        Some((pages.parse::<u64>().ok()?, name, files))
    });
    let (_, name, files) = processes.max_by_key(|(pages, ..)| *pages)?;
    let files: MappedFiles = files.lines().collect();
    (!wanted.is_in(&files)).then(|| printable::name(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRELOAD: &str = "/opt/imas/libimas-guard.so:/opt/imas/libjemalloc.so";

    #[test]
    fn the_process_that_holds_most_is_judged() {
        let serves = "/lib/libc.so.6\n/opt/imas/libimas-guard.so\n/opt/imas/libjemalloc.so\n";
        let text =
            |shell: &str, server: &str| format!("= 300 sh\n{shell}= 90000 node server\n{server}= 9 x\n");
        assert_eq!(lacking(PRELOAD, &text("/lib/libc.so.6\n", serves)), None);
        assert_eq!(lacking(PRELOAD, &text(serves, "/lib/libc.so.6\n")).as_deref(), Some("node server"));
        assert_eq!(lacking(PRELOAD, "nonsense\n= x y\n"), None, "nothing is known");
    }

    /// This very process, as the script sees it.
    #[test]
    fn a_shell_alone_can_look() {
        let done = std::process::Command::new("sh").args(["-c", SCRIPT]).output().unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        assert!(text.contains("libc.so.6\n") && text.starts_with("= "), "{text}");
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert!(text.lines().any(|line| line.starts_with("= ") && line.ends_with(own.trim())), "{text}");
    }
}
