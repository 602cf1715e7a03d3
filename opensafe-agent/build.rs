//! Names the kernel object that the binary embeds. `cargo xtask build` makes it and sets
//! `OPENSAFE_EBPF_OBJECT`; without it an earlier build's object is taken, else an empty one, and the
//! binary says so when it is asked to load anything. That keeps `cargo check` free of the eBPF tools.

use std::{env, fs, path::PathBuf};

/// Names the object, and so the layout of its maps: two binaries with the same one can work with the same maps. FNV-1a, by
/// G. Fowler, L. C. Noll and K.-P. Vo: nobody makes objects that are to be mistaken for others.
fn layout(object: &[u8]) -> String {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", object.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-env-changed=OPENSAFE_EBPF_OBJECT");
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let built = manifest.join("../target/ebpf/opensafe.o");
    let object = match env::var_os("OPENSAFE_EBPF_OBJECT") {
        Some(path) => PathBuf::from(path),
        None => built.clone(),
    };
    println!("cargo::rerun-if-changed={}", object.display());
    let object = if object.is_file() {
        object
    } else {
        let empty = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("empty.o");
        fs::write(&empty, [])?;
        empty
    };
    println!("cargo::rustc-env=OPENSAFE_EBPF_OBJECT={}", object.display());
    println!(
        "cargo::rustc-env=OPENSAFE_LAYOUT={}",
        layout(&fs::read(&object)?)
    );
    Ok(())
}
