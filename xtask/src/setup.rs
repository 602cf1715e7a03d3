//! Finds what building and testing need, installs what is missing where it can (apt, as root), and says what to do
//! where it cannot. Nothing is touched when all is there.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    repo::{self, say},
    run::{self, find, quietly},
};

/// The linker for eBPF, as it was tried with the toolchains below.
const BPF_LINKER: &str = "0.13.0";
/// Its LLVM; no older than the compiler's.
const LLVM: &str = "22";
/// The oldest compiler that the dependencies of the kernel programs accept.
const OLDEST: (u32, u32) = (1, 95);

/// Something on this machine, and the Debian packages that bring it.
struct Need {
    what: &'static str,
    packages: &'static [&'static str],
    there: fn() -> bool,
}

/// For the agent, which is linked statically by the C compiler.
const AGENT: &[Need] = &[Need {
    what: "a C compiler",
    packages: &["gcc", "libc6-dev"],
    there: || find("cc").is_some(),
}];

/// For the kernel programs.
const EBPF: &[Need] = &[Need {
    what: "a Rust compiler that can build `core` (rustup's nightly with rust-src, or Debian's rustc-web)",
    packages: &["rustc-web", "rust-web-src", "cargo-web"],
    there: || EbpfToolchain::find().is_some(),
}];

/// For building bpf-linker.
const LINKER: &[Need] = &[Need {
    what: "LLVM 22's libraries",
    packages: &[
        "llvm-22-dev",
        "libclang-22-dev",
        "libpolly-22-dev",
        "zlib1g-dev",
        "libzstd-dev",
        "g++",
    ],
    there: || Path::new("/usr/lib/llvm-22/lib/libPolly.a").exists() && find("c++").is_some(),
}];

/// For guests.
const GUESTS: &[Need] = &[
    Need {
        what: "qemu-system-x86_64",
        packages: &["qemu-system-x86"],
        there: || find("qemu-system-x86_64").is_some(),
    },
    Need {
        what: "mmdebstrap",
        packages: &["mmdebstrap"],
        there: || find("mmdebstrap").is_some(),
    },
    Need {
        what: "Debian's archive keys",
        packages: &["debian-archive-keyring"],
        there: || Path::new(crate::vm::KEYRING).exists(),
    },
    Need {
        what: "mkfs.ext4",
        packages: &["e2fsprogs"],
        there: || find("mkfs.ext4").is_some(),
    },
    Need {
        what: "a static busybox",
        packages: &["busybox-static"],
        there: || busybox().is_some(),
    },
    Need {
        what: "depmod",
        packages: &["kmod"],
        there: || find("depmod").is_some(),
    },
    Need {
        what: "xz",
        packages: &["xz-utils"],
        there: || find("xz").is_some(),
    },
    Need {
        what: "tar",
        packages: &["tar"],
        there: || find("tar").is_some(),
    },
    Need {
        what: "setpriv",
        packages: &["util-linux"],
        there: || find("setpriv").is_some(),
    },
];

/// `cargo xtask setup`.
pub(crate) fn everything() -> Result<()> {
    for_build()?;
    for_guests()?;
    say("everything that building and testing need is there");
    Ok(())
}

/// What `cargo xtask build` needs.
pub(crate) fn for_build() -> Result<(EbpfToolchain, PathBuf)> {
    let _alone = repo::lock(&repo::target().join("setup.lock"))?;
    require(&[AGENT, EBPF])?;
    let toolchain = EbpfToolchain::find()
        .context("no Rust compiler for eBPF, although it was just installed")?;
    let linker = match bpf_linker() {
        Some(linker) => linker,
        None => install_bpf_linker()?,
    };
    Ok((toolchain, linker))
}

/// What guests need.
pub(crate) fn for_guests() -> Result<()> {
    if GUESTS.iter().all(|need| (need.there)()) {
        return Ok(());
    }
    let _alone = repo::lock(&repo::target().join("setup.lock"))?;
    require(&[GUESTS])
}

/// Installs what is missing of it, or says what a person has to.
fn require(needs: &[&[Need]]) -> Result<()> {
    let missing: Vec<&Need> = needs
        .iter()
        .flat_map(|needs| needs.iter())
        .filter(|need| !(need.there)())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing
        .iter()
        .flat_map(|need| need.packages)
        .copied()
        .collect();
    let lacking: Vec<&str> = missing.iter().map(|need| need.what).collect();
    if find("apt-get").is_none() {
        bail!(
            "missing: {}\nOn Debian: apt-get install {}. Elsewhere, install what these contain; for the compiler: \
             rustup toolchain install nightly --component rust-src",
            lacking.join(", "),
            packages.join(" ")
        );
    }
    if !root() {
        bail!(
            "missing: {}\nRun as root, or: sudo apt-get install {}",
            lacking.join(", "),
            packages.join(" ")
        );
    }
    say(format_args!("installing {}", packages.join(" ")));
    if apt_install(&packages).is_err() {
        // The package lists may be absent or older than what the mirror holds.
        run::run(apt().arg("update"))?;
        apt_install(&packages)?;
    }
    match missing.iter().find(|need| !(need.there)()) {
        Some(need) => bail!(
            "{} is still missing after installing {}",
            need.what,
            need.packages.join(" ")
        ),
        None => Ok(()),
    }
}

fn apt_install(packages: &[&str]) -> Result<()> {
    quietly(
        apt()
            .args(["install", "--yes", "--no-install-recommends"])
            .args(packages),
    )
    .map(drop)
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-q", "-o", "DPkg::Lock::Timeout=600"]);
    command
}

fn root() -> bool {
    quietly(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0")
}

/// A busybox that runs without any library.
pub(crate) fn busybox() -> Option<PathBuf> {
    let busybox = find("busybox")?;
    // A dynamic program names its loader in its first page.
    let start = fs::read(&busybox)
        .ok()?
        .into_iter()
        .take(4096)
        .collect::<Vec<u8>>();
    (!start.windows(8).any(|word| word == b"ld-linux")).then_some(busybox)
}

/// A compiler and a cargo that build for a target that has no `core` ready.
pub(crate) enum EbpfToolchain {
    /// rustup's, by name.
    Rustup(String),
    /// Debian's, which are /usr/bin/rustc and /usr/bin/cargo.
    Debian,
}

impl EbpfToolchain {
    /// The first of the usual ones that has `core`'s sources.
    pub(crate) fn find() -> Option<Self> {
        Self::rustup().or_else(Self::debian)
    }

    /// `cargo` of that toolchain.
    pub(crate) fn cargo(&self) -> Command {
        match self {
            Self::Rustup(toolchain) => {
                let mut command = rustup(&["run", toolchain, "cargo"]);
                run::clean(&mut command);
                command
            }
            Self::Debian => {
                let mut command = Command::new("/usr/bin/cargo");
                run::clean(&mut command);
                command
                    .env("RUSTC", "/usr/bin/rustc")
                    .env("RUSTC_BOOTSTRAP", "1");
                command
            }
        }
    }

    fn rustup() -> Option<Self> {
        find("rustup")?;
        let toolchains = quietly(&mut rustup(&["toolchain", "list"])).ok()?;
        toolchains
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| name.starts_with("nightly"))
            .find(|name| {
                quietly(&mut rustup(&["run", name, "rustc", "--print", "sysroot"]))
                    .is_ok_and(|root| has_core(&root))
            })
            .map(|name| Self::Rustup(name.into()))
    }

    fn debian() -> Option<Self> {
        let rustc = || {
            let mut command = Command::new("/usr/bin/rustc");
            run::clean(&mut command);
            command
        };
        let version = quietly(rustc().arg("--version")).ok()?;
        let sysroot = quietly(rustc().args(["--print", "sysroot"])).ok()?;
        let usable = Path::new("/usr/bin/cargo").exists()
            && release(&version)? >= OLDEST
            && has_core(&sysroot);
        usable.then_some(Self::Debian)
    }
}

fn rustup(arguments: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command
        .args(arguments)
        .env("RUSTUP_AUTO_INSTALL", "0")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

fn has_core(sysroot: &str) -> bool {
    Path::new(sysroot.trim())
        .join("lib/rustlib/src/rust/library/core/src/lib.rs")
        .exists()
}

/// `rustc 1.96.0 (…)` → (1, 96).
fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split_whitespace().nth(1)?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn bpf_linker() -> Option<PathBuf> {
    find("bpf-linker")
        .or_else(|| Some(cargo_home()?.join("bin/bpf-linker")).filter(|file| file.exists()))
}

fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(env::home_dir()?.join(".cargo")))
}

fn install_bpf_linker() -> Result<PathBuf> {
    require(&[LINKER])?;
    say(format_args!(
        "installing bpf-linker {BPF_LINKER} (a minute or two)"
    ));
    let path = env::var_os("PATH").unwrap_or_default();
    let llvm = PathBuf::from(format!("/usr/lib/llvm-{LLVM}/bin"));
    let path = env::join_paths(std::iter::once(llvm).chain(env::split_paths(&path)))?;
    run::run(
        run::cargo()
            .current_dir("/")
            .env("PATH", path)
            .args([
                "install",
                "bpf-linker",
                "--quiet",
                "--locked",
                "--version",
                BPF_LINKER,
            ])
            .args([
                "--no-default-features",
                "--features",
                &format!("llvm-{LLVM}"),
            ]),
    )?;
    bpf_linker()
        .context("bpf-linker was installed, but is neither on PATH nor in cargo's bin directory")
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn a_release_is_read_from_what_rustc_prints() {
        assert_eq!(
            release("rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)"),
            Some((1, 96))
        );
        assert_eq!(
            release("rustc 1.97.0-nightly (abc 2026-05-25)"),
            Some((1, 97))
        );
        assert_eq!(release("rustc"), None);
    }
}
