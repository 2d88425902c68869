// SPDX-License-Identifier: Apache-2.0
//! Compiles the C that `imas` has and that concerns what it starts (each file says why it is there) and links
//! it into the binary, where nothing calls it.

const SOURCES: [&str; 3] = [
    "../../crates/imas/src/closed_streams.c",
    "../../crates/imas/src/odd_entries.c",
    "../../crates/imas/src/sigpipe.c",
];

fn main() {
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
    }
    let objects = cc::Build::new().files(SOURCES).flag("-Wextra").compile_intermediates();
    for object in objects {
        println!("cargo:rustc-link-arg-bins={}", object.display());
    }
}
