// SPDX-License-Identifier: Apache-2.0
//! `imas env`: what has to be set to start something under a candidate, in the words of a shell, a unit, an
//! image or a cluster.
//!
//! The output is made of names and paths of this installation; each format quotes them by its own rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Libraries, Reach, Variables};

use serde_json::json;

use crate::apply::reached;
use crate::command_line::cli::Places;
use crate::command_line::service_args::{EnvArgs, Format};
use crate::stored::find;
use imas_cli::message::{self, Hinted};
use imas_cli::output;
use imas_engine::context::Context;
use imas_engine::program_view::state;
use imas_engine::{drop_in, lasting};

pub(crate) fn run(args: &EnvArgs, places: &Places, context: &Context) -> Result<ExitCode> {
    let name = match (&args.candidate, &args.program) {
        (Some(name), _) => name.clone(),
        (None, Some(word)) => learned(context, word)?,
        (None, None) => unreachable!("clap asks for one of them"),
    };
    // A shell's own variables are known; of the others we know nothing, and say so.
    let inherited = if args.format == Format::Sh { Variables::inherited() } else { Variables::new() };
    let (wanted, without) = lasting::without_trims(&reached::usable(context, &name)?);
    without.iter().for_each(|remark| message::warning(remark));
    let candidate = lasting::for_any(&wanted, &inherited)?;
    let is_for_container = !matches!(args.format, Format::Sh | Format::Systemd);
    let candidate = if is_for_container { lasting::bare(candidate) } else { candidate };
    let needs_files = reached::files(context, &candidate).next().is_some();
    if needs_files && args.bundle.is_none() {
        refuse_checkout(places, context, &name)?;
    }
    let moved = args.bundle.as_deref().map(|at| lasting::moved(&candidate, at));
    let candidate = moved.as_ref().unwrap_or(&candidate);
    let variables = reached::changes(&libraries(context, args), candidate, Reach::Children, &inherited)?;
    if args.json.json {
        let variables: BTreeMap<_, _> = variables.into_iter().collect();
        output::json(&json!({ "schema": 1, "candidate": candidate.name, "environment": variables }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let setting = Setting { context, candidate, variables, args };
    output::text(&match args.format {
        Format::Sh => setting.sh(),
        Format::Systemd => setting.systemd(),
        Format::Dockerfile => setting.dockerfile(),
        Format::Compose => setting.compose(),
        Format::Kubernetes => setting.kubernetes(),
    })?;
    lasting::remarks(candidate).iter().for_each(|remark| message::warning(remark));
    if is_for_container {
        let elsewhere = lasting::remark_on_processors(candidate, imas_linux::host::cpus());
        elsewhere.iter().for_each(|remark| message::warning(remark));
        setting.warn();
    } else if args.format == Format::Systemd && candidate.runtime.is_some() {
        message::warning(
            "a variable of these names that the unit sets is replaced: put its options before ours",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// An error where the libraries are in a checkout that the user did not name.
pub(crate) fn refuse_checkout(places: &Places, context: &Context, candidate: &str) -> Result<()> {
    if places.lib_dir.is_some() || !is_checkout(&context.lib_dir) {
        return Ok(());
    }
    Err(Hinted::error(
        format!(
            "{}: these libraries are part of a checkout, which nothing that lasts may rely on",
            context.lib_dir.display()
        ),
        format!(
            "'make install', or 'imas bundle {candidate} --out DIR' and 'imas env --bundle DIR'; --lib-dir takes any folder as it is"
        ),
    ))
}

/// Whether the installation is a checkout as `make` leaves it: the folder moves, is cleaned, and belongs to a
/// developer.
fn is_checkout(lib_dir: &Path) -> bool {
    lib_dir.ends_with("build/lib/imas")
        && lib_dir.ancestors().nth(3).is_some_and(|root| root.join("Cargo.toml").is_file())
}

/// Libraries that the setting names: this machine's. An image gets the files alone, without the folder
/// through which children find them.
fn libraries(context: &Context, args: &EnvArgs) -> Libraries {
    if let Some(bundle) = &args.bundle {
        return Libraries::plain(bundle);
    }
    match args.format {
        Format::Sh | Format::Systemd => context.libraries.clone(),
        Format::Dockerfile | Format::Compose | Format::Kubernetes => Libraries::plain(&context.lib_dir),
    }
}

fn learned(context: &Context, word: &std::ffi::OsStr) -> Result<String> {
    let store = crate::stored::view(context)?;
    let state =
        state(context, &store, find(&store, word)?, &crate::command_line::cli::RulesArgs::of_environment())?;
    Ok(reached::settled_or_why(&state)?.to_owned())
}

/// The settings that are to be written.
struct Setting<'a> {
    context: &'a Context,
    candidate: &'a CatalogueCandidate,
    variables: Vec<(String, String)>,
    args: &'a EnvArgs,
}

impl Setting<'_> {
    fn sh(&self) -> String {
        self.variables.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "export {name}={}", shell_words::quote(value)); // a String takes everything
            text
        })
    }

    fn systemd(&self) -> String {
        let lines = self.variables.iter().map(|(name, value)| drop_in::line(name, value));
        format!(
            "# {}; a drop-in replaces a LD_PRELOAD of the unit: 'imas apply UNIT' composes them\n[Service]\n",
            self.candidate.name
        ) + &lines.collect::<String>()
    }

    fn dockerfile(&self) -> String {
        let name = &self.candidate.name;
        match &self.args.bundle {
            _ if self.folders().is_empty() => format!("# {name}\n") + &self.env_lines(),
            Some(at) => {
                let copy = json_list(&[Path::new("imas"), at]);
                format!(
                    "# {name}. First, beside the Dockerfile: imas bundle {name} --out imas\nCOPY {copy}\n"
                ) + &self.env_lines()
            }
            None => self.dockerfile_of_files() + &self.env_lines(),
        }
    }

    fn env_lines(&self) -> String {
        let line =
            |(name, value): &(String, String)| format!("ENV {name}={}\n", escaped(value, &['"', '\\', '$']));
        self.variables.iter().map(line).collect()
    }

    fn dockerfile_of_files(&self) -> String {
        let folder = Path::new("imas");
        let mut text = format!(
            "# {}. Copy the libraries beside the Dockerfile first:\n#   mkdir -p imas",
            self.candidate.name
        );
        for file in self.own_files() {
            text.push_str(&format!(" && cp {} imas/", shell_words::quote(&file.to_string_lossy())));
        }
        text.push('\n');
        if let Some(needs) = &self.candidate.needs {
            text.push_str(&format!("# The image must have {} from its own distribution.\n", needs.display()));
        }
        for file in self.own_files() {
            let name = file.file_name().map(PathBuf::from).unwrap_or_default();
            text.push_str(&format!("COPY {}\n", json_list(&[&folder.join(name), file])));
        }
        text
    }

    fn compose(&self) -> String {
        let name = &self.candidate.name;
        let first = match &self.args.bundle {
            Some(_) if !self.folders().is_empty() => {
                format!(". First, beside the compose file: imas bundle {name} --out imas")
            }
            _ => String::new(),
        };
        let mut text = format!("# {name}{first}\nservices:\n  {}:\n    environment:\n", self.args.name);
        for (name, value) in &self.variables {
            // Compose replaces $NAME; $$ stands for the sign.
            text.push_str(&format!("      {name}: {}\n", json_text(&value.replace('$', "$$"))));
        }
        if !self.folders().is_empty() {
            text.push_str("    volumes:\n");
        }
        for folder in self.folders() {
            let target = json_text(&folder.to_string_lossy().replace('$', "$$"));
            // The path of a bundle is the container's: on the host it lies beside the compose file.
            let source = if self.args.bundle.is_some() { "\"./imas\"" } else { target.as_str() };
            text.push_str(&format!("      - type: bind\n        source: {source}\n        target: {target}\n        read_only: true\n"));
        }
        text
    }

    fn kubernetes(&self) -> String {
        let mut text = format!(
            "# {} for the container '{}': kubectl patch deployment NAME --patch-file THIS\n\
             spec:\n  template:\n    metadata:\n      annotations:\n        imas.io/candidate: {}\n    spec:\n",
            self.candidate.name,
            self.args.name,
            json_text(&self.candidate.name)
        );
        let folders: Vec<_> = self.folders().into_iter().collect();
        if !folders.is_empty() {
            text.push_str("      volumes:\n");
        }
        for (number, folder) in folders.iter().enumerate() {
            text.push_str(&format!("        - name: imas-{number}\n"));
            text.push_str(&match &self.args.image {
                Some(image) => format!(
                    "          image:\n            reference: {}\n            pullPolicy: IfNotPresent\n",
                    json_text(image)
                ),
                None => format!(
                    "          hostPath:\n            path: {}\n            type: Directory\n",
                    json_text(&folder.to_string_lossy())
                ),
            });
        }
        text.push_str(&format!("      containers:\n        - name: {}\n          env:\n", self.args.name));
        for (name, value) in &self.variables {
            // Kubernetes replaces $(NAME); $$( stands for it. A value may not be beside a source: null takes
            // away one that the container has.
            text.push_str(&format!(
                "            - name: {name}\n              value: {}\n              valueFrom: null\n",
                json_text(&value.replace("$(", "$$("))
            ));
        }
        if !folders.is_empty() {
            text.push_str("          volumeMounts:\n");
        }
        for (number, folder) in folders.iter().enumerate() {
            let path = json_text(&folder.to_string_lossy());
            text.push_str(&format!("            - name: imas-{number}\n              mountPath: {path}\n              readOnly: true\n"));
        }
        text
    }

    /// The files that are ours to bring; what the distribution has is the image's.
    fn own_files(&self) -> Vec<&Path> {
        let theirs = self.candidate.needs.as_deref();
        reached::files(self.context, self.candidate).filter(|file| Some(*file) != theirs).collect()
    }

    /// The folders to mount: the installation's, and the folder of a library which lies elsewhere.
    fn folders(&self) -> BTreeSet<PathBuf> {
        if self.own_files().is_empty() {
            return BTreeSet::new();
        }
        if let Some(bundle) = &self.args.bundle {
            return BTreeSet::from([bundle.clone()]);
        }
        let lib_dir = &self.context.lib_dir;
        let of = |file: &Path| {
            if file.starts_with(lib_dir) { lib_dir.clone() } else { file.parent().unwrap_or(file).to_owned() }
        };
        self.own_files().into_iter().map(of).collect()
    }

    fn warn(&self) {
        if self.folders().is_empty() {
            return message::warning(
                "a variable of these names that the image sets is replaced: put its options before ours",
            );
        }
        message::warning(&format!(
            "for images with {} or later only: in one with musl (Alpine) or an older C library no program of the container would start",
            lasting::oldest_libc([self.candidate], self.own_files())
        ));
        if let Some(needs) = &self.candidate.needs {
            message::warning(&format!("{} has to be in the image", needs.display()));
        }
        message::warning("an LD_PRELOAD that the image sets is replaced: append it to ours, after a colon");
    }
}

/// A JSON string is a YAML string.
fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn json_list(paths: &[&Path]) -> String {
    let words = paths.iter().map(|path| json_text(&path.to_string_lossy())).collect::<Vec<_>>();
    format!("[{}]", words.join(", "))
}

/// In double quotes, with a backslash before each of the signs.
fn escaped(text: &str, signs: &[char]) -> String {
    let mut quoted = String::from('"');
    for sign in text.chars() {
        if signs.contains(&sign) {
            quoted.push('\\');
        }
        quoted.push(sign);
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_each_format() {
        assert_eq!(json_text("a\"b\\c:d"), r#""a\"b\\c:d""#);
        assert_eq!(escaped(r#"a"$b\"#, &['"', '\\', '$']), r#""a\"\$b\\""#);
        assert_eq!(json_list(&[Path::new("a b"), Path::new("/c")]), r#"["a b", "/c"]"#);
    }
}
