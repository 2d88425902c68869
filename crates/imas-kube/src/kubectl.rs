// SPDX-License-Identifier: Apache-2.0
//! The cluster, by the user's own kubectl: its contexts, logins and rights count.

use std::io::{Read, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Error, Result, bail};
use imas_cli::message::Hinted;
use serde_json::Value;

/// Longest time for one answer of the apiserver.
const TIMEOUT: &str = "--request-timeout=30s";
/// Most bytes that are read of what a container prints.
const MOST_OF_CONTAINER: u64 = 1 << 20;

/// A kubectl with the options of the command line.
#[derive(Debug)]
pub(crate) struct Kubectl {
    pub(crate) context: Option<String>,
    pub(crate) namespace: Option<String>,
}

impl Kubectl {
    /// The namespace that is meant: the one named, else the one of kubectl's context.
    pub(crate) fn namespace(&self) -> Result<String> {
        if let Some(named) = &self.namespace {
            return Ok(named.clone());
        }
        let own = self.run(&["config", "view", "--minify", "--output", "jsonpath={..namespace}"], None)?;
        Ok(if own.trim().is_empty() { "default".to_owned() } else { own.trim().to_owned() })
    }

    /// An object; None if it is not there.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Result<Option<Value>> {
        let text = self.run(&["get", kind, name, "--output=json", "--ignore-not-found"], None)?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        Ok(Some(
            serde_json::from_str(&text).with_context(|| format!("kubectl's answer about {kind} {name}"))?,
        ))
    }

    /// The objects of a kind that have the label; all if it is empty.
    pub(crate) fn list(&self, kind: &str, label: &str) -> Result<Vec<Value>> {
        let text = self.run(&["get", kind, "--output=json", "--selector", label], None)?;
        let mut list: Value =
            serde_json::from_str(&text).with_context(|| format!("kubectl's list of {kind}"))?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Document at a path of the apiserver; None if it answers with an error, as where metrics-server is not
    /// installed.
    pub(crate) fn raw(&self, path: &str) -> Option<Value> {
        serde_json::from_str(&self.run(&["get", "--raw", path], None).ok()?).ok()
    }

    /// Changes the named fields of an object.
    pub(crate) fn merge(&self, kind: &str, name: &str, patch: &Value) -> Result<()> {
        self.run(&["patch", kind, name, "--type=merge", "--patch-file=/dev/stdin"], Some(patch)).map(drop)
    }

    /// Has the controller of a workload replace its pods.
    pub(crate) fn restart(&self, kind: &str, name: &str) -> Result<()> {
        self.run(&["rollout", "restart", kind, name], None).map(drop)
    }

    /// Creates an object.
    pub(crate) fn create(&self, object: &Value) -> Result<()> {
        self.run(&["create", "--filename=-"], Some(object)).map(drop)
    }

    /// Deletes a pod; its controller makes another.
    pub(crate) fn delete_pod(&self, name: &str) -> Result<()> {
        self.run(&["delete", "pod", name, "--wait=false", "--ignore-not-found"], None).map(drop)
    }

    /// Runs a script in a container of a pod, by its shell; what it prints. The container is another's, which may print
    /// for ever: the time and the bytes are bounded.
    pub(crate) fn exec(&self, pod: &str, container: &str, script: &str) -> Result<String> {
        let mut kubectl = Command::new("timeout");
        self.add_options(kubectl.args(["--kill-after=5", "30", "kubectl"]));
        kubectl.args(["exec", pod, "--container", container, "--", "sh", "-c", script]);
        let mut child = kubectl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (text, said) = (all_of_it(child.stdout.take()), all_of_it(child.stderr.take()));
        let ended = child.wait().context("kubectl")?;
        if ended.success() { text } else { Err(failure("exec", &said?)) }
    }

    fn add_options(&self, kubectl: &mut Command) {
        kubectl.arg(TIMEOUT);
        kubectl.args(self.context.iter().flat_map(|name| ["--context", name]));
        kubectl.args(self.namespace.iter().flat_map(|name| ["--namespace", name]));
    }

    fn run(&self, words: &[&str], input: Option<&Value>) -> Result<String> {
        let mut kubectl = Command::new("kubectl");
        self.add_options(&mut kubectl);
        kubectl.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kubectl.spawn().map_err(|error| {
            Hinted::error(
                format!("kubectl cannot be run: {error}"),
                "install kubectl; it is the client that is used",
            )
        })?;
        let mut pipe = child.stdin.take().context("kubectl without an input")?;
        if let Some(input) = input {
            let _ = pipe.write_all(input.to_string().as_bytes()); // kubectl says what it misses
        }
        drop(pipe);
        let ended = child.wait_with_output().context("kubectl")?;
        if !ended.status.success() {
            return Err(failure(words.first().unwrap_or(&""), &String::from_utf8_lossy(&ended.stderr)));
        }
        Ok(String::from_utf8_lossy(&ended.stdout).into_owned())
    }
}

/// Output of a container; an error where it is too much.
fn all_of_it(pipe: Option<impl Read>) -> Result<String> {
    let mut bytes = Vec::new();
    pipe.context("kubectl without an output")?.take(MOST_OF_CONTAINER).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == MOST_OF_CONTAINER {
        bail!("kubectl exec: the container prints more than a mebibyte");
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The error in the output of kubectl, with the way out where it is known.
fn failure(verb: &str, output: &str) -> Error {
    let lines: Vec<_> = output.trim().lines().filter(|line| !is_of_log(line)).collect();
    let why = if lines.is_empty() { output.trim().to_owned() } else { lines.join("\n") };
    let has = |words: &[&str]| words.iter().any(|word| why.contains(word));
    let hint = if has(&["(Forbidden)"]) {
        "'imas kube rbac' prints the rights that are needed; 'kubectl auth can-i --list' those that you have"
    } else if has(&["was refused", "Unable to connect", "imeout", "deadline exceeded"]) {
        "does 'kubectl cluster-info' answer? --context names another cluster"
    } else {
        return Error::msg(format!("kubectl {verb}: {why}"));
    };
    Hinted::error(format!("kubectl {verb}: {why}"), hint)
}

/// Whether the line is one of kubectl's log: a letter, month and day. Its last line says the same in words.
fn is_of_log(line: &str) -> bool {
    let bytes = line.as_bytes();
    matches!(bytes.first(), Some(b'E' | b'I' | b'W'))
        && bytes.get(1..5).is_some_and(|date| date.iter().all(u8::is_ascii_digit))
        && bytes.get(5) == Some(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_cli::message;

    #[test]
    fn of_an_apiserver_that_is_away_there_is_one_line() {
        let log = "E1127 02:20:00.1 77 memcache.go:265] \"Unhandled Error\" err=\"couldn't get the list\"\n";
        let said = "The connection to the server 127.0.0.1:1 was refused - is it the right one?";
        let error = failure("get", &format!("{log}{log}{said}\n"));
        assert_eq!(error.to_string(), format!("kubectl get: {said}"));
        assert!(message::hint(&error).unwrap().contains("cluster-info"));
        assert_eq!(failure("get", log).to_string(), format!("kubectl get: {}", log.trim()), "nothing else");
    }

    #[test]
    fn who_may_not_learns_which_rights_are_needed() {
        let error =
            failure("get", "Error from server (Forbidden): pods is forbidden: User \"x\" cannot list\n");
        assert!(message::hint(&error).unwrap().contains("imas kube rbac"));
        let error = failure("patch", "Error from server (NotFound): x\nmore");
        assert_eq!(
            (error.to_string().as_str(), message::hint(&error)),
            ("kubectl patch: Error from server (NotFound): x\nmore", None)
        );
    }
}
