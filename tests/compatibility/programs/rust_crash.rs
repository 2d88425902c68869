// SPDX-License-Identifier: Apache-2.0
//! rust_crash overflow|thread|panic|abort: how a Rust program ends.

fn deeper(depth: u64) -> u64 {
    let room = [depth; 64];
    std::hint::black_box(&room);
    if depth == u64::MAX { 0 } else { deeper(depth + 1) + room[3] }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("overflow") => println!("{}", deeper(0)),
        Some("thread") => {
            let name = std::thread::Builder::new().name("small".into()).stack_size(256 << 10);
            let _ = name.spawn(|| deeper(0)).map(|thread| thread.join());
        }
        Some("panic") => {
            let caught = std::panic::catch_unwind(|| panic!("first"));
            println!("caught {}", caught.is_err());
            panic!("second");
        }
        _ => std::process::abort(),
    }
}
