// SPDX-License-Identifier: Apache-2.0
//! Places of everything of the machine: the file, the run folder, the static tools, the libraries to be
//! linked.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_linux::loader::{self, Loader};

use super::args::Where;
use imas_cli::message::Hinted;
use imas_engine::flags::Places;
use imas_engine::folders;

/// The file that the dynamic linker reads. Its path is fixed.
pub(super) const PRELOAD_FILE: &str = "/etc/ld.so.preload";
const STUB: &str = "libimas-preload.so";

/// The machine, or the system below a folder, that `imas system` works on.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) preload_file: PathBuf,
    pub(super) run_dir: PathBuf,
    /// None when no libraries are found; taking IMAS out must work without.
    pub(super) lib_dir: Option<PathBuf>,
    imas: PathBuf,
}

/// The library of one kind of program, and the link through which its dynamic linker finds it.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    pub(super) loader: Loader,
    /// The library itself.
    pub(super) stub: PathBuf,
    /// Symbolic link to it below the run folder.
    pub(super) link: PathBuf,
}

impl Machine {
    pub(super) fn new(at: &Where, places: &Places) -> Result<Self> {
        let absolute = |path: &Path| std::path::absolute(path).with_context(|| path.display().to_string());
        // Named by the environment, perhaps, and that by a user. The machine's own folder must not keep IMAS from being
        // taken out.
        let named = Some(&at.run_dir).filter(|folder| *folder != Path::new(imas_abi::RUN_FOLDER)).cloned();
        let catalogue = places.lib_dir.as_ref().map(|folder| folder.join("catalogue.toml"));
        named.iter().chain(&catalogue).try_for_each(|file| folders::check(file))?;
        Ok(Self {
            preload_file: absolute(&at.preload_file)?,
            run_dir: absolute(&at.run_dir)?,
            lib_dir: imas_engine::context::lib_dir(places.lib_dir.as_deref()).ok(),
            imas: std::env::current_exe().context("cannot find out where imas itself is")?,
        })
    }

    /// The entry of ld.so.preload. `$LIB` stays: each dynamic linker puts its own folder there.
    pub(super) fn entry(&self) -> String {
        format!("{}/$LIB/{STUB}", self.run_dir.display())
    }

    /// Whether these files are those that the running machine goes by.
    pub(super) fn is_live(&self) -> bool {
        self.preload_file == Path::new(PRELOAD_FILE)
    }

    /// Path of this command.
    pub(super) fn imas(&self) -> &Path {
        &self.imas
    }

    /// A static tool: beside the command (`bin/imas`, `sbin/imas-ldpreload`), or as built in the source tree.
    pub(super) fn tool(&self, name: &str) -> Result<PathBuf> {
        let from = self.lib_dir.iter().chain([&self.imas]).flat_map(|path| path.ancestors().skip(1).take(3));
        let places: Vec<_> = from.flat_map(|base| [base.join("sbin"), base.join("build/sbin")]).collect();
        let found = places.iter().map(|place| place.join(name)).find(|path| path.is_file());
        found.ok_or_else(|| {
            Hinted::error(
                format!("{name} is not installed: it is what takes IMAS out of a machine that does not start programs"),
                "install the package again, or run 'make tools'",
            )
        })
    }

    /// The libraries' folder, or what to do about it.
    pub(super) fn lib_dir(&self) -> Result<&Path> {
        self.lib_dir.as_deref().ok_or_else(|| {
            Hinted::error("the libraries are not installed", "name their folder with --lib-dir DIR")
        })
    }

    /// The libraries to link: one for each kind of program whose dynamic linker is installed.
    pub(super) fn placements(&self) -> Result<Vec<Placement>> {
        let lib_dir = self.lib_dir()?;
        let placements: Vec<_> = loader::all()
            .into_iter()
            .map(|loader| Placement {
                stub: lib_dir.join(loader.folder).join(STUB),
                link: self.run_dir.join(&loader.lib).join(STUB),
                loader,
            })
            .collect();
        match placements.first() {
            Some(native) if native.loader.native => Ok(placements),
            _ => Err(Hinted::error(
                "the dynamic linker could not be asked where it looks for libraries ($LIB)",
                "it takes glibc 2.33 or later; 'imas run' works without",
            )),
        }
    }

    /// Path of the file where what root approved is written down.
    pub(super) fn approved(&self) -> PathBuf {
        self.run_dir.join("approved.json")
    }

    /// The table of candidates that the library reads.
    pub(super) fn catalogue(&self) -> PathBuf {
        self.run_dir.join("catalogue")
    }

    /// The boot id as programs see it, for a daemon that may see another.
    pub(super) fn boot_id(&self) -> PathBuf {
        self.run_dir.join(imas_linux::boot::FILE_NAME)
    }

    /// Path of the file that, while it exists, keeps every process untouched.
    pub(super) fn disabled(&self) -> PathBuf {
        self.run_dir.join("disabled")
    }

    /// The daemon's cry for help.
    pub(super) fn emergency(&self) -> PathBuf {
        self.run_dir.join("state/emergency")
    }

    /// The daemon's decisions.
    pub(super) fn index(&self) -> PathBuf {
        self.run_dir.join("state/index")
    }
}

/// Refuses unless root.
pub(super) fn need_root(what: &str) -> Result<()> {
    match nix::unistd::geteuid().is_root() {
        true => Ok(()),
        false => Err(Hinted::error(
            format!("{what}: only root can"),
            "do it as root; for your own programs there is 'imas run'",
        )),
    }
}
