// SPDX-License-Identifier: Apache-2.0
//! `imas bundle`: an allocator and all files that it needs in one folder, for an image or a read-only volume.
//! The rest of IMAS is not needed there.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use imas_cli::output_file::{self, NewFile, OutputFolder};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Libraries, Reach, Variables};
use rustix::fs::Mode;
use serde_json::json;

use crate::apply::reached;
use crate::command_line::cli::BundleArgs;
use imas_cli::message::{self, Hinted};
use imas_cli::output;
use imas_engine::context::Context;
use imas_engine::{lasting, runtime_command};

/// File with the variables, one a line, for `docker run --env-file` and `env_file:` of compose.
const ENV_FILE: &str = "imas.env";
/// Stand-in for a bundle's folder in its own README, which does not know the folder's name.
const THIS_FOLDER: &str = "THIS_FOLDER";
/// Endings of the names of archives, with what tar gets for each.
const ARCHIVES: [(&str, &[&str]); 3] = [(".tar", &[]), (".tar.gz", GZIP), (".tgz", GZIP)];
/// Without the time of packing.
const GZIP: &[&str] = &["--use-compress-program=gzip -n"];
/// Hint where the folder of `--out` cannot be used.
const ANOTHER_FOLDER: &str = "name a folder of yours that is empty or not there yet";
/// Hint where it is the name of an archive that is not written.
const ANOTHER_NAME: &str = "name a folder, or a file that ends in .tar, .tar.gz or .tgz";
/// Version of musl for which allocators are built.
const MUSL: &str = "musl 1.2.3";

pub(crate) fn run(args: &BundleArgs, context: &Context) -> Result<ExitCode> {
    let (wanted, without) = lasting::without_trims(&reached::usable(context, &args.candidate)?);
    without.iter().for_each(|remark| message::warning(remark));
    let candidate = lasting::for_container(&wanted)?;
    let candidate = if args.musl { for_musl(context, &candidate)? } else { candidate };
    let bundle = Bundle::new(context, &candidate, args)?;
    if let Some(options) = packing(&args.out) {
        let folder = tempfile::tempdir().context("a temporary folder")?;
        bundle.write(folder.path())?;
        pack(folder.path(), &args.out, options)?;
    } else {
        check_out(&args.out)?;
        bundle.write(&args.out)?;
    }
    let elsewhere = lasting::remark_on_processors(&candidate, imas_linux::host::cpus());
    lasting::remarks(&candidate).iter().chain(&elsewhere).for_each(|remark| message::warning(remark));
    if !bundle.files.is_empty() {
        warn(args, &bundle.libc);
    }
    let out = args.out.display();
    if args.json.json {
        let variables: std::collections::BTreeMap<_, _> = bundle.variables.iter().cloned().collect();
        output::json(
            &json!({ "schema": 1, "out": args.out, "candidate": candidate.name, "at": args.at, "environment": variables }),
        )?;
    } else {
        output::text(&format!(
            "{out} holds {}; to use it:\n{}",
            candidate.name,
            bundle.readme(&named(&args.out))
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The contents of a bundle.
struct Bundle<'a> {
    candidate: &'a CatalogueCandidate,
    /// Folder of the bundle when it is used.
    at: &'a Path,
    files: Vec<PathBuf>,
    licences: String,
    variables: Vec<(String, String)>,
    /// Oldest C library with which it works.
    libc: String,
}

impl<'a> Bundle<'a> {
    fn new(context: &Context, candidate: &'a CatalogueCandidate, args: &'a BundleArgs) -> Result<Self> {
        lasting::can_be_taken(candidate)?;
        let of_musl =
            || [Some(runtime_command::libraries_of_musl(&context.lib_dir).guard), candidate.library.clone()];
        let files: Vec<PathBuf> = match args.musl {
            true => of_musl().into_iter().flatten().collect(),
            false => reached::files(context, candidate).map(Path::to_owned).collect(),
        };
        Ok(Self {
            at: &args.at,
            licences: if files.is_empty() {
                String::new()
            } else {
                lasting::licences_of(context, candidate)?
            },
            variables: reached::changes(
                &Libraries::plain(&args.at),
                &lasting::moved(candidate, &args.at),
                Reach::Children,
                &Variables::new(),
            )?,
            libc: match args.musl {
                true => MUSL.to_owned(),
                false => lasting::oldest_libc([candidate], files.iter().map(PathBuf::as_path)),
            },
            files,
            candidate,
        })
    }

    /// Writes all of its files or none, also on a disk that gets full.
    fn write(&self, folder: &Path) -> Result<()> {
        let named = || folder.display().to_string();
        let is_new = !folder.exists();
        let bundle = OutputFolder::make(folder).with_context(named);
        let bundle = bundle.map_err(|error| Hinted::error(message::text(&error), ANOTHER_FOLDER))?;
        let written = self.fill(&bundle).with_context(named);
        if written.is_err() && is_new {
            let _ = std::fs::remove_dir(folder); // empty; the first error is reported
        }
        written
    }

    fn fill(&self, folder: &OutputFolder) -> Result<()> {
        let lines: String = self.variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let mut contents: Vec<(&OsStr, Vec<u8>, u32)> = vec![];
        for file in &self.files {
            let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
            contents.push((file.file_name().unwrap_or_default(), bytes, 0o755));
        }
        let texts =
            [("LICENCES", self.licences.clone()), (ENV_FILE, lines), ("README", self.readme(THIS_FOLDER))];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        contents.extend(texts.map(|(name, text)| (OsStr::new(name), text.into_bytes(), 0o644)));
        let files = contents.iter().map(|(name, bytes, mode)| NewFile {
            name,
            bytes,
            mode: Some(Mode::from_raw_mode(*mode)),
        });
        folder.write_all(&files.collect::<Vec<_>>())?;
        Ok(folder.set_mode(Mode::from_raw_mode(0o755))?)
    }

    /// The contents, how to add them to an image, how to use them without one, and what they reach.
    /// `folder`: its name beside the Dockerfile.
    fn readme(&self, folder: &str) -> String {
        let (name, at) = (&self.candidate.name, self.at.display());
        let env_file = format!("--env-file {folder}/{ENV_FILE}");
        let image: String =
            self.variables.iter().map(|(name, value)| format!("  ENV {}\n", wrapped(name, value))).collect();
        if self.files.is_empty() {
            return format!(
                "{name}: variables alone, for any image; no file is needed in it.\n\
                 In a Dockerfile:\n{image}Or: docker run {env_file} IMAGE\n\
                 What the program starts in turn inherits them.\n"
            );
        }
        format!(
            "{name}, for programs of {} Linux with {} or later.\n\
             It belongs at {at} (licences: LICENCES).\n\
             In a Dockerfile:\n  COPY {folder} {at}\n{image}\
             Or mount it:\n  docker run -v \"$PWD/{folder}:{at}:ro\" \\\n    {env_file} IMAGE\n\
             It reaches what the container starts, and everything that executes in turn.\n",
            std::env::consts::ARCH,
            self.libc,
        )
    }
}

/// Name for the texts of a folder or archive: what it is called in the folder where it was made.
fn named(out: &Path) -> String {
    let name =
        out.file_name().map_or_else(|| THIS_FOLDER.to_owned(), |name| name.to_string_lossy().into_owned());
    let name = ARCHIVES.iter().find_map(|(ending, _)| name.strip_suffix(ending)).unwrap_or(&name);
    shell_words::quote(name).into_owned()
}

/// A variable for `ENV` of a Dockerfile, in lines of at most 100 characters: a value is broken after a colon, where the
/// Dockerfile joins the lines again.
fn wrapped(name: &str, value: &str) -> String {
    const WIDTH: usize = 90;
    let mut text = format!("{name}=\"");
    let mut length = text.len();
    for part in value.split_inclusive(':') {
        if length + part.len() > WIDTH && length > name.len() + 2 {
            text.push_str("\\\n");
            length = 0;
        }
        let part = part.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$");
        length += part.len();
        text.push_str(&part);
    }
    text + "\""
}

/// An existing folder must be empty or a bundle. No other folder is written to.
fn check_out(out: &Path) -> Result<()> {
    let mut entries = match std::fs::read_dir(out) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return output_file::check_folder_name(out, ANOTHER_NAME);
        }
        Err(error) => return Err(Hinted::error(format!("{}: {error}", out.display()), ANOTHER_FOLDER)),
    };
    if entries.next().is_some() && !out.join(ENV_FILE).is_file() {
        let what = format!("{}: a folder with other files in it", out.display());
        return Err(Hinted::error(what, ANOTHER_FOLDER));
    }
    Ok(())
}

/// Options of tar for an archive of that name; `None` for the name of a folder.
fn packing(out: &Path) -> Option<&'static [&'static str]> {
    let name = out.file_name()?.as_bytes();
    ARCHIVES.iter().find(|(ending, _)| name.ends_with(ending.as_bytes())).map(|(_, options)| *options)
}

/// Packs the folder: a whole archive or none. The same bundle always gives the same archive.
fn pack(folder: &Path, file: &Path, options: &[&str]) -> Result<()> {
    let mut tar = std::process::Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "-c", "-f", "-"]);
    tar.args(options);
    let tar =
        tar.arg("-C").arg(folder).arg(".").stderr(Stdio::inherit()).output().context("tar cannot be run")?;
    if !tar.status.success() {
        bail!("{}: tar failed", file.display());
    }
    output_file::write(file, &tar.stdout).with_context(|| file.display().to_string())
}

/// The candidate as programs of musl get it.
fn for_musl(context: &Context, candidate: &CatalogueCandidate) -> Result<CatalogueCandidate> {
    runtime_command::candidate_of_musl(context, candidate).map_err(|why| {
        let name = &candidate.name;
        Hinted::error(
            format!("{name} cannot be had for programs of musl: {why}"),
            format!("there are {}, with their settings", runtime_command::ALLOCATORS_OF_MUSL.join(", ")),
        )
    })
}

fn warn(args: &BundleArgs, libc: &str) {
    if args.musl {
        return message::warning(&format!(
            "for images with {libc} (Alpine) or later only: no program of glibc in it would start"
        ));
    }
    message::warning(&format!(
        "for images with {libc} or later only: in one with musl (Alpine) or an older C library no program would start",
    ));
}
