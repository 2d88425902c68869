// SPDX-License-Identifier: Apache-2.0
//! Programs that are started by a link: one file may be several programs, and one program may have several names.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{World, build, list, output, printed, succeeded, text};

struct Links {
    world: World,
    folder: PathBuf,
}

impl Links {
    /// A program of that name, and links to it.
    fn new(file: &str, links: &[&str]) -> Self {
        let world = World::new();
        world.tests_six("");
        let folder = std::fs::canonicalize(world.work()).unwrap();
        build::program_with("cc", "who", &[], &folder.join(file));
        for link in links {
            std::os::unix::fs::symlink(file, folder.join(link)).unwrap();
        }
        Self { world, folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn start(&self, name: &str) {
        succeeded(self.world.start([self.path(name)]));
    }

    /// Programs that are known, by number: path and detail.
    fn known(&self) -> Vec<(String, String)> {
        let shown = self.world.json(["show", "--json"]);
        let file = |path: &str| Path::new(path).file_name().unwrap().to_string_lossy().into_owned();
        let of =
            |program| (file(text(program, "/program/path")), text(program, "/program/detail").to_owned());
        list(&shown, "/programs").iter().map(of).collect()
    }

    /// The detail of the program that the words show.
    fn shown(&self, name: &str) -> String {
        let shown = self.world.json(["show", "--json", &self.path(name)]);
        text(&shown, "/program/detail").to_owned()
    }
}

#[test]
fn the_names_of_a_file_are_programs_of_their_own() {
    let links = Links::new("check-rdb", &["server", "sentinel"]);
    for name in ["server", "sentinel", "check-rdb", "server"] {
        links.start(name);
    }
    let of = |detail: &str| ("check-rdb".to_owned(), detail.to_owned());
    assert_eq!(links.known(), [of("as server"), of("as sentinel"), of("")]);
    assert_eq!(
        ["server", "sentinel", "check-rdb"].map(|name| links.shown(name)),
        ["as server", "as sentinel", ""]
    );
    succeeded(output(&mut links.world.imas(["pin", &links.path("server"), "jemalloc"])));
    let serves = |name: &str| crate::support::stdout(&links.world.start([links.path(name)]));
    assert!(serves("server").starts_with("jemalloc "));
    assert!(!links.world.json(["show", "--json", &links.path("sentinel")])["pinned"].is_string());
    links.world.check(["explain", &links.path("server")]).success();
    links.world.check(["forget", &links.path("server")]).success();
    assert_eq!(links.known(), [of("as sentinel"), of("")]);
}

#[test]
fn links_that_name_a_version_have_one_history() {
    let links = Links::new("tool2.11", &["tool", "tool2"]);
    for name in ["tool", "tool2", "tool2.11"] {
        links.start(name);
    }
    assert_eq!(links.known(), [("tool2.11".to_owned(), String::new())]);
    assert_eq!(links.world.trials().len(), 3);
}

#[test]
fn what_is_known_by_the_file_alone_is_found_by_a_name() {
    let links = Links::new("check-rdb", &["server"]);
    links.start("check-rdb");
    assert_eq!(links.shown("server"), "");
}

#[test]
fn a_program_and_a_script_with_a_newline_in_their_names_are_measured() {
    let links = Links::new("check\nrdb", &[]);
    links.start("check\nrdb");
    assert_eq!(links.known(), [("check\nrdb".to_owned(), String::new())]);
    assert_eq!(links.world.trials().len(), 1);
    let script = links.folder.join("a\nb.py");
    std::fs::write(&script, "#!/usr/bin/python3\npass\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    links.start("a\nb.py");
    assert_eq!(links.known()[1].1, script.to_str().unwrap());
    assert_eq!(links.world.trials().len(), 2);
    let shown = printed(&succeeded(output(&mut links.world.imas(["show"]))));
    assert!(shown.contains("a\\nb.py") && !shown.contains("a\nb.py"), "{shown}");
}
