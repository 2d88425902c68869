// SPDX-License-Identifier: Apache-2.0
//! Links into every program what it needs to start under an older glibc than it is built with
//! (`system/old_glibc.c` says how).

use std::path::Path;
use std::{env, fs};

const SOURCE: &str = "../../system/old_glibc.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-changed=build.rs");
    // Sanitizers put functions of their own in the place of the same names.
    let is_fuzzed = env::var_os("CARGO_CFG_FUZZING").is_some();
    if is_fuzzed || env::var("CARGO_CFG_TARGET_ENV").as_deref() != Ok("gnu") {
        return;
    }
    cc::Build::new()
        .file(SOURCE)
        .define("_GNU_SOURCE", None)
        .define("WITH_LIBM", None)
        .flag("-Wextra")
        .compile("imas_old_glibc");
    link_pthread(Path::new(&env::var_os("OUT_DIR").expect("cargo names the folder")));
}

/// Links with a library made here that has the name of libpthread and `pthread_create` in its first version.
/// It is no part of the program: the linker notes the name.
fn link_pthread(folder: &Path) {
    let first = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "GLIBC_2.2.5",
        _ => "GLIBC_2.17",
    };
    let (source, map) = (folder.join("old_pthread.c"), folder.join("old_pthread.map"));
    fs::write(&source, "void pthread_create(void) {}\n").expect("a file of the build");
    fs::write(&map, format!("{first} {{ global: pthread_create; local: *; }};\n"))
        .expect("a file of the build");
    let ended = cc::Build::new()
        .get_compiler()
        .to_command()
        .args(["-w", "-shared", "-nostdlib", "-Wl,-soname,libpthread.so.0"])
        .arg(format!("-Wl,--version-script={}", map.display()))
        .arg("-o")
        .arg(folder.join("libimas_old_pthread.so"))
        .arg(&source)
        .status()
        .expect("the C compiler can be started");
    assert!(ended.success(), "{}: not compiled", source.display());
    println!("cargo:rustc-link-lib=dylib=imas_old_pthread");
}
