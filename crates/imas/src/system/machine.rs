// SPDX-License-Identifier: Apache-2.0
//! Places of everything of the machine: the file, the run folder, the static tools, the libraries to be
//! linked.
//!
//! The links below the run folder, through which every program finds its library.
//!
//! The text of `/etc/ld.so.preload`, read only: `imas-ldpreload` alone edits it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_cli::message::Hinted;
use imas_engine::flags::Places;
use imas_engine::folders;
use imas_linux::preloads::{self, Loader};

use super::Where;

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
        let placements: Vec<_> = preloads::loaders()
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
        self.run_dir.join(imas_linux::host::FILE_NAME)
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

/// Entries of the file in order with their line numbers, as the dynamic linker reads them: separated by
/// blank, tab, newline or colon, comments left out as it leaves them out.
pub(super) fn preload_entries(text: &str) -> Vec<(usize, &str)> {
    let seen = without_comments(text.as_bytes());
    let separates = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | b':');
    let mut found = vec![];
    let (mut at, mut line) = (0, 1);
    for word in seen.split(|&byte| separates(byte)) {
        let end = at + word.len();
        // Comments are blanked to their line's end or to nowhere: a word is never cut out of the midst of a
        // character.
        if let Some(entry) = text.get(at..end).filter(|entry| !entry.is_empty()) {
            found.push((line, entry));
        }
        line += usize::from(seen.get(end) == Some(&b'\n'));
        at = end + 1;
    }
    found
}

/// Replaces by blanks what glibc takes for comments. After each comment, glibc searches for the next from the
/// beginning of the file, but only as many bytes as follow the comment. So it misses later comments and loads
/// the libraries in them.
fn without_comments(text: &[u8]) -> Vec<u8> {
    let mut seen = text.to_vec();
    let mut rest = seen.len();
    while let Some(comment) = seen[..rest].iter().position(|&byte| byte == b'#') {
        rest -= comment;
        let mut at = comment;
        loop {
            seen[at] = b' ';
            rest -= 1;
            at += 1;
            if rest == 0 || seen[at] == b'\n' {
                break;
            }
        }
    }
    seen
}

/// Text of the file; empty when there is none.
pub(super) fn read_preload(file: &Path) -> std::io::Result<String> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// The text without that entry, for a rehearsal: entries one to a line.
pub(super) fn without_entry(text: &str, entry: &str) -> String {
    let others = preload_entries(text).into_iter().filter(|&(_, other)| other != entry);
    others.map(|(_, other)| format!("{other}\n")).collect()
}

/// Makes the run folder as it must be: root's, readable by all.
pub(super) fn make_run_dir(run_dir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let make = || {
        std::fs::create_dir_all(run_dir)?;
        std::fs::set_permissions(run_dir, std::fs::Permissions::from_mode(0o755))
    };
    make().with_context(|| run_dir.display().to_string())
}

/// Makes or changes a link; at no instant is there none.
pub(super) fn place(link: &Path, target: &Path) -> Result<()> {
    let fresh = link.with_extension("new");
    let make = || {
        std::fs::create_dir_all(link.parent().unwrap_or_else(|| Path::new("/")))?;
        let _ = std::fs::remove_file(&fresh); // of a copy that was killed
        std::os::unix::fs::symlink(target, &fresh)?;
        std::fs::rename(&fresh, link)
    };
    make().with_context(|| format!("the link {}", link.display()))
}

/// Makes the links of the machine.
pub(super) fn place_links(machine: &Machine) -> Result<()> {
    make_run_dir(&machine.run_dir)?;
    for placement in machine.placements()?.iter().filter(|placement| placement.stub.is_file()) {
        place(&placement.link, &placement.stub)?;
    }
    Ok(())
}

/// Takes the links away, and what `place_all` made for them.
pub(super) fn remove_links(machine: &Machine) {
    for loader in imas_linux::preloads::loaders() {
        let folder = machine.run_dir.join(&loader.lib);
        let _ = std::fs::remove_file(folder.join("libimas-preload.so")); // not there: as wished
        for empty in folder.ancestors().take_while(|folder| *folder != machine.run_dir) {
            let _ = std::fs::remove_dir(empty); // fails if there are other files in it, which must stay
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_parsed_as_by_the_linker() {
        let text = "/a.so /b.so:/c.so # /no.so\n\t/d.so\n";
        assert_eq!(preload_entries(text), [(1, "/a.so"), (1, "/b.so"), (1, "/c.so"), (2, "/d.so")]);
        let overlooked = "# a long first comment, longer than the rest\n/a.so\n# /no.so\n";
        assert_eq!(preload_entries(overlooked), [(2, "/a.so"), (3, "#"), (3, "/no.so")]);
        assert_eq!(without_entry(text, "/b.so"), "/a.so\n/c.so\n/d.so\n");
    }
}
