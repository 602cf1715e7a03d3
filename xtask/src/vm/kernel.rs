//! Kernels for guests: fetched from Debian's packages or given by path, each with its modules as an image and an
//! initramfs that can mount the root.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{cpio::Archive, debian::Apt, image};
use crate::{
    repo::{self, say},
    run::{find, quietly},
    setup,
};

/// A kernel of the cloud flavour, the Debian suites that have it (tried in this order), and how packages name it.
struct Known {
    name: &'static str,
    suites: &'static [&'static str],
    packages: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        name: "6.1",
        suites: &["bookworm"],
        packages: r"^linux-image-6\.1\.[0-9].*-cloud-amd64$",
    },
    Known {
        name: "6.12",
        suites: &["trixie", "bookworm-backports"],
        packages: r"^linux-image-6\.12\.[0-9].*-cloud-amd64$",
    },
    Known {
        name: "7.2",
        suites: &["sid", "testing", "trixie-backports"],
        packages: r"^linux-image-7\.2\.[0-9].*-cloud-amd64$",
    },
];

/// What mounting the root and speaking to this program take; what is built into a kernel is skipped.
const EARLY_MODULES: &[&str] = &["virtio_pci", "virtio_blk", "virtio_console", "ext4"];
const FIRST_PROGRAM: &[u8] = include_bytes!("../../guest/initramfs");

/// A kernel that is ready to boot.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// The kernel image.
    pub(super) image: PathBuf,
    /// Loads what the root's disk needs, and mounts it.
    pub(super) initramfs: PathBuf,
    /// A file system for /usr/lib/modules.
    pub(super) modules: PathBuf,
}

/// The names of the kernels that the project is tested on.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.iter().map(|known| known.name)
}

/// The kernel of that name or path, made ready.
pub(super) fn ready(name: &str) -> Result<Kernel> {
    let kernels = repo::vm().join("kernels");
    if let Some(known) = KNOWN.iter().find(|known| known.name == name) {
        let folder = kernels.join(name);
        let _alone = repo::lock(&kernels.join(format!("{name}.lock")))?;
        if !folder.exists() {
            fill(&folder, |unfinished| fetch(known, unfinished))?;
        }
        return derive(&folder);
    }
    let given = Given::at(Path::new(name))?;
    let stamp = fs::metadata(&given.image)?
        .modified()?
        .duration_since(std::time::UNIX_EPOCH)?
        .as_nanos();
    let key = repo::fingerprint(&[
        given.image.as_os_str().as_encoded_bytes(),
        given
            .modules
            .as_deref()
            .unwrap_or(Path::new(""))
            .as_os_str()
            .as_encoded_bytes(),
        stamp.to_string().as_bytes(),
    ]);
    let folder = kernels.join(format!("given-{key}"));
    let _alone = repo::lock(&kernels.join(format!("given-{key}.lock")))?;
    if !folder.exists() {
        fill(&folder, |unfinished| given.copy(unfinished))?;
    }
    derive(&folder)
}

/// Makes a folder as a whole or not at all.
fn fill(folder: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    // After the whole name: what follows the dot in `6.1` is no extension.
    let unfinished = folder.with_file_name(format!("{}.unfinished", file_name(folder)));
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| unfinished.display().to_string())?;
    }
    fs::create_dir_all(&unfinished).with_context(|| unfinished.display().to_string())?;
    make(&unfinished)?;
    fs::rename(&unfinished, folder).with_context(|| folder.display().to_string())
}

/// Puts `vmlinuz` and `lib/modules/<version>` into `folder`, from the first suite that has the kernel.
fn fetch(known: &Known, folder: &Path) -> Result<()> {
    say(format_args!(
        "fetching kernel {} from Debian (once)",
        known.name
    ));
    let mut tried = Vec::new();
    for suite in known.suites {
        let work = folder.join("apt");
        let found = Apt::of(suite, &work).and_then(|apt| {
            let package = newest(apt.names(known.packages)?).context("no such package")?;
            let parts = apt.depends(&package)?;
            // Since 7.x the image package is a shell around two others.
            let parts = parts.into_iter().filter(|part| {
                part.starts_with("linux-binary-") || part.starts_with("linux-modules-")
            });
            let packages: Vec<String> = std::iter::once(package).chain(parts).collect();
            apt.download(&packages, &work)
        });
        if let Err(error) = found {
            tried.push(format!("{suite}: {error:#}"));
            continue;
        }
        let tree = work.join("tree");
        for package in
            files(&work)?.filter(|file| file.extension().is_some_and(|kind| kind == "deb"))
        {
            quietly(
                Command::new("dpkg-deb")
                    .arg("--extract")
                    .arg(package)
                    .arg(&tree),
            )?;
        }
        Given::at(&tree)?.copy(folder)?;
        return fs::remove_dir_all(&work).with_context(|| work.display().to_string());
    }
    bail!(
        "kernel {}: not found on the mirror; `--kernel PATH` boots one that you have\n{}",
        known.name,
        tried.join("\n")
    )
}

/// The one with the highest version, number by number.
fn newest(names: Vec<String>) -> Option<String> {
    let version = |name: &String| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit())
            .filter_map(|number| number.parse().ok())
            .collect()
    };
    names.into_iter().max_by_key(version)
}

/// A kernel image and, where they were found, its modules.
struct Given {
    image: PathBuf,
    modules: Option<PathBuf>,
}

impl Given {
    /// `path` is an image, or the root of an unpacked package.
    fn at(path: &Path) -> Result<Self> {
        let path = path.canonicalize().with_context(|| {
            format!(
                "kernel {}: neither {} nor a path",
                path.display(),
                names().collect::<Vec<_>>().join(", ")
            )
        })?;
        if path.is_dir() {
            let modules = ["usr/lib/modules", "lib/modules"]
                .iter()
                .find_map(|place| only(&path.join(place)));
            let image = files(&path.join("boot"))
                .ok()
                .and_then(|mut files| files.find(|file| file_name(file).starts_with("vmlinuz")))
                .or_else(|| Some(modules.as_ref()?.join("vmlinuz")).filter(|image| image.exists()))
                .with_context(|| {
                    format!(
                        "{}: no boot/vmlinuz* and no lib/modules/*/vmlinuz",
                        path.display()
                    )
                })?;
            return Ok(Self { image, modules });
        }
        // As installed (boot/vmlinuz-VERSION), or as one keeps it: vmlinuz beside lib.
        let version = file_name(&path)
            .split_once('-')
            .map(|(_, version)| version.to_owned());
        let modules = path.ancestors().skip(1).take(2).find_map(|around| {
            let places = ["usr/lib/modules", "lib/modules"].map(|place| around.join(place));
            places.into_iter().find_map(|place| match &version {
                Some(version) => Some(place.join(version)).filter(|modules| modules.is_dir()),
                None => only(&place),
            })
        });
        Ok(Self {
            image: path,
            modules,
        })
    }

    /// Copies it into `folder` as `vmlinuz` and `lib/modules/<version>`, with the index that Debian's packages lack.
    fn copy(&self, folder: &Path) -> Result<()> {
        fs::copy(&self.image, folder.join("vmlinuz"))
            .with_context(|| self.image.display().to_string())?;
        let all = folder.join("lib/modules");
        fs::create_dir_all(&all)?;
        let Some(modules) = &self.modules else {
            return Ok(());
        };
        quietly(Command::new("cp").arg("-a").arg(modules).arg(&all))?;
        let _ = fs::remove_file(all.join(file_name(modules)).join("vmlinuz"));
        let depmod = find("depmod").context("depmod is missing")?;
        quietly(
            Command::new(depmod)
                .arg("-b")
                .arg(folder)
                .arg(file_name(modules)),
        )
        .map(drop)
    }
}

/// The image of the modules and the initramfs of a kernel in its folder, made if they are not there for this recipe.
fn derive(folder: &Path) -> Result<Kernel> {
    let busybox = setup::busybox().context("a static busybox is missing")?;
    let busybox = fs::read(&busybox).with_context(|| busybox.display().to_string())?;
    let recipe = repo::fingerprint(&[FIRST_PROGRAM, EARLY_MODULES.join(" ").as_bytes(), &busybox]);
    let kernel = Kernel {
        image: folder.join("vmlinuz"),
        initramfs: folder.join(format!("initramfs-{recipe}")),
        modules: folder.join("modules.img"),
    };
    if !kernel.modules.exists() {
        let unfinished = folder.join("modules.unfinished");
        image::ext4(&folder.join("lib/modules"), &unfinished)?;
        fs::rename(&unfinished, &kernel.modules)?;
    }
    if !kernel.initramfs.exists() {
        let modules = match only(&folder.join("lib/modules")) {
            Some(directory) => early_modules(&directory)?,
            None => Vec::new(),
        };
        repo::write_if_changed(&kernel.initramfs, &initramfs(&busybox, &modules))?;
    }
    Ok(kernel)
}

fn initramfs(busybox: &[u8], modules: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = Archive::new();
    for directory in ["bin", "dev", "proc", "sys", "modules"] {
        archive.directory(directory);
    }
    archive.character_device("dev/console", 5, 1);
    archive.program("bin/busybox", busybox);
    archive.program("init", FIRST_PROGRAM);
    for (name, bytes) in modules {
        archive.program(&format!("modules/{name}"), bytes);
    }
    let order: Vec<&str> = modules.iter().map(|(name, _)| name.as_str()).collect();
    archive.program("modules/order", order.join("\n").as_bytes());
    archive.finish()
}

/// The modules that come first, unpacked, each after those it depends on.
fn early_modules(directory: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let index = directory.join("modules.dep");
    let text = fs::read_to_string(&index).with_context(|| index.display().to_string())?;
    let mut modules = Vec::new();
    for file in load_order(&text, EARLY_MODULES) {
        let path = directory.join(&file);
        let packed = fs::read(&path).with_context(|| path.display().to_string())?;
        let bytes = match path.extension().and_then(|kind| kind.to_str()) {
            Some("xz") => unpack("xz", &path)?,
            Some("zst") => unpack("zstd", &path)?,
            _ => packed,
        };
        modules.push((format!("{}.ko", module_name(&file)), bytes));
    }
    Ok(modules)
}

fn unpack(program: &str, file: &Path) -> Result<Vec<u8>> {
    let output = Command::new(program)
        .arg("-dc")
        .arg(file)
        .output()
        .with_context(|| program.to_owned())?;
    if !output.status.success() {
        bail!("{program} -dc {}: {}", file.display(), output.status);
    }
    Ok(output.stdout)
}

/// The files of `wanted` and of all they depend on, by `modules.dep`: `file: file file…`.
fn load_order(dependencies: &str, wanted: &[&str]) -> Vec<String> {
    let table: BTreeMap<&str, Vec<&str>> = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needs)| (file, needs.split_whitespace().collect()))
        .collect();
    let mut order = Vec::new();
    for name in wanted {
        if let Some(file) = table.keys().find(|file| module_name(file) == *name) {
            visit(&table, file, &mut order);
        }
    }
    order
}

fn visit(table: &BTreeMap<&str, Vec<&str>>, file: &str, order: &mut Vec<String>) {
    for need in table.get(file).into_iter().flatten() {
        visit(table, need, order);
    }
    if !order.iter().any(|known| known == file) {
        order.push(file.to_owned());
    }
}

/// `kernel/drivers/block/virtio_blk.ko.xz` → `virtio_blk`.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn files(folder: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    Ok(entries.flatten().map(|entry| entry.path()))
}

/// The one directory in a directory.
fn only(folder: &Path) -> Option<PathBuf> {
    files(folder).ok()?.find(|path| path.is_dir())
}

#[cfg(test)]
mod tests {
    use super::{load_order, module_name, newest};

    #[test]
    fn a_module_comes_after_what_it_needs() {
        let table = "k/virtio_blk.ko: k/virtio_ring.ko k/virtio.ko\nk/virtio_ring.ko: k/virtio.ko\nk/virtio.ko:\n";
        assert_eq!(
            load_order(table, &["virtio_blk", "ext4"]),
            ["k/virtio.ko", "k/virtio_ring.ko", "k/virtio_blk.ko"]
        );
    }

    #[test]
    fn names_of_modules_have_neither_path_nor_packing() {
        assert_eq!(module_name("kernel/net/vmw-vsock.ko.xz"), "vmw_vsock");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let names = [
            "linux-image-6.1.0-9-cloud-amd64",
            "linux-image-6.1.0-47-cloud-amd64",
        ]
        .map(str::to_owned);
        assert_eq!(
            newest(names.into()).as_deref(),
            Some("linux-image-6.1.0-47-cloud-amd64")
        );
    }
}
