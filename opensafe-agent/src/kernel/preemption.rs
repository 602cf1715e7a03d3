//! Whether the kernel passes modify-return programs over.
//!
//! Before it runs a program of the kind `BPF_PROG_TYPE_TRACING`, it looks whether that is running on this processor already,
//! and if so leaves it out (`__bpf_prog_enter_recur` in kernel/bpf/trampoline.c; meant for a program that calls what it is
//! attached to). That is also so if another task was preempted inside it, until that task goes on: with eight busy tasks on a
//! processor, one of them niced, a denied file was read 54,626 times in 55,600 (Linux 6.12, `preempt=full`). Nothing that such programs do
//! could help, as they are what is left out. Programs of the LSM's hooks are not treated so.
//!
//! So they are asked each time only where tasks are not preempted inside the kernel, and are used only there.

use std::{fs::File, io::Read as _, path::Path};

use nix::sys::utsname::uname;
use procfs::sys::kernel::Version;
use rustix::{
    fs::{Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

/// Why such programs are of no use: the kernel preempts tasks inside it, or may do so for all that is known.
pub(super) fn passes_over() -> Option<String> {
    let version = uname().ok()?.version().to_string_lossy().into_owned();
    let preempts = by_version(&version, || mode().or_else(asked_for).or_else(built_for))?;
    Some(format!(
        "{preempts}, and leaves such programs out where another task was preempted inside one"
    ))
}

/// Whether a kernel preempts, in words: by what it says of its build, and, if that leaves it open, of its mode.
fn by_version(version: &str, mode: impl FnOnce() -> Option<String>) -> Option<String> {
    let built = version
        .split_whitespace()
        .find(|word| word.starts_with("PREEMPT"))?;
    if built != "PREEMPT_DYNAMIC" {
        return Some(format!("this kernel preempts tasks inside it ({built})"));
    }
    match mode().as_deref() {
        Some("none" | "voluntary") => None,
        Some(mode) => Some(format!("this kernel preempts tasks inside it ({mode})")),
        None => Some(
            "this kernel may preempt tasks inside it (its mode is in debugfs, sched/preempt, and cannot be read)"
                .to_owned(),
        ),
    }
}

/// The mode in force, from a debugfs of our own: `none voluntary (full)`.
fn mode() -> Option<String> {
    let context = fsopen("debugfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_create(&context).ok()?;
    let mount = fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )
    .ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(&mount, Path::new("sched/preempt"), flags, Mode::empty()).ok()?;
    let mut modes = String::new();
    File::from(file).read_to_string(&mut modes).ok()?;
    chosen(&modes).map(str::to_owned)
}

fn chosen(modes: &str) -> Option<&str> {
    Some(modes.split_once('(')?.1.split_once(')')?.0)
}

/// The mode that the kernel's command line asks for. A kernel that does not know it says so and takes another.
fn asked_for() -> Option<String> {
    let line = std::fs::read_to_string("/proc/cmdline").ok()?;
    let mut words = line.split_whitespace();
    let mode = words.rfind(|word| word.starts_with("preempt="))?;
    let mode = mode.trim_start_matches("preempt=");
    // Since Linux 7.0 there are kernels that have neither.
    let is_known = Version::current().is_ok_and(|kernel| kernel < Version::new(7, 0, 0));
    is_known.then(|| mode.to_owned())
}

/// The mode that the kernel was built to begin with, from where distributions keep what it was configured with. For kernels whose
/// lockdown lets nobody read debugfs, and so nobody change the mode.
fn built_for() -> Option<String> {
    let release = uname().ok()?.release().to_string_lossy().into_owned();
    let places = [
        format!("/boot/config-{release}"),
        format!("/lib/modules/{release}/config"),
    ];
    let read = |place: &String| std::fs::read_to_string(place).ok();
    default_mode(&places.iter().find_map(read)?).map(str::to_owned)
}

fn default_mode(configuration: &str) -> Option<&'static str> {
    // kernel/Kconfig.preempt: a choice, so there is one.
    const MODES: [(&str, &str); 4] = [
        ("CONFIG_PREEMPT_NONE=y", "none"),
        ("CONFIG_PREEMPT_VOLUNTARY=y", "voluntary"),
        ("CONFIG_PREEMPT_LAZY=y", "lazy"),
        ("CONFIG_PREEMPT=y", "full"),
    ];
    let is_set = |option: &str| configuration.lines().any(|line| line == option);
    MODES
        .into_iter()
        .find_map(|(option, mode)| is_set(option).then_some(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_preempt_says_so_by_its_build_or_its_mode() {
        let mode = |mode: &'static str| move || Some(mode.to_owned());
        let dynamic = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.48-1 (2025-09-20)";
        assert_eq!(by_version("#1 SMP Debian 5.10", mode("full")), None);
        assert_eq!(by_version(dynamic, mode("voluntary")), None);
        assert_eq!(by_version(dynamic, mode("none")), None);
        for preempts in [
            by_version(dynamic, mode("full")),
            by_version(dynamic, mode("lazy")),
            by_version(dynamic, || None),
            by_version("#1 SMP PREEMPT_RT Debian", mode("none")),
            by_version("#1 SMP PREEMPT_LAZY", mode("none")),
        ] {
            assert!(preempts.is_some());
        }
    }

    #[test]
    fn a_kernel_begins_with_the_mode_that_was_chosen_for_it() {
        let dynamic =
            "CONFIG_PREEMPT_VOLUNTARY=y\n# CONFIG_PREEMPT is not set\nCONFIG_PREEMPT_DYNAMIC=y\n";
        assert_eq!(default_mode(dynamic), Some("voluntary"));
        assert_eq!(
            default_mode("CONFIG_PREEMPT=y\nCONFIG_PREEMPT_DYNAMIC=y\n"),
            Some("full")
        );
        assert_eq!(default_mode("CONFIG_PREEMPT_DYNAMIC=y\n"), None);
    }

    #[test]
    fn the_mode_in_force_is_the_one_in_brackets() {
        assert_eq!(chosen("none voluntary (full) lazy\n"), Some("full"));
        assert_eq!(chosen("none voluntary full\n"), None);
    }
}
