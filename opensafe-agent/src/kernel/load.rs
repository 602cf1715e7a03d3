//! The programs are loaded: what they are told of this kernel, and the way in which they are asked.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
};

use aya::{Btf, EbpfError, EbpfLoader};
use opensafe_common::layout::Host;
use zerocopy::IntoBytes as _;

use super::{
    Hook, KernelError, MAIN_HOOK, OBJECT, Sizes, btf, is_loaded, listed, preemption,
    programs::{self, Programs, States},
};
use crate::enforcement::Way;

/// Loads the programs in the first way in which those of the LSM's hooks will be asked. A kernel with BPF LSM built in takes
/// and attaches them even where `bpf` is not among its active modules, and then never calls them; so that is not tried. Where
/// there is no way, what stands in for them is loaded, and the states say why not in the last one.
pub(super) fn load_some_way(
    sizes: &Sizes,
    vmlinux: &btf::Btf,
    rename_lock: u64,
    pins_device: u32,
) -> Result<(Programs, States, Option<Way>), KernelError> {
    let is_loaded = |states: &States| is_loaded(states, MAIN_HOOK);
    if listed() == Some(true) {
        let (programs, states) =
            load_with(sizes, vmlinux, rename_lock, pins_device, &Ok(Way::Lsm))?;
        if is_loaded(&states) {
            return Ok((programs, states, Some(Way::Lsm)));
        }
    }
    let way = preemption::passes_over().map_or(Ok(Way::ModifyReturn), Err);
    let (programs, states) = load_with(sizes, vmlinux, rename_lock, pins_device, &way)?;
    let way = is_loaded(&states).then_some(Way::ModifyReturn);
    Ok((programs, states, way))
}

fn load_with(
    sizes: &Sizes,
    vmlinux: &btf::Btf,
    rename_lock: u64,
    pins_device: u32,
    way: &Result<Way, String>,
) -> Result<(Programs, States), KernelError> {
    let offsets = vmlinux.offsets()?;
    let cpus = u32::try_from(aya::util::nr_cpus().map_or(1, |cpus| cpus)).unwrap_or(1);
    let scratch_slots = (cpus * SCRATCH_SLOTS_A_CPU).max(SCRATCH_SLOTS_AT_LEAST);
    let host = Host {
        rename_lock,
        scratch_slots,
        setattr_dentry: vmlinux.setattr_dentry(*way.as_ref().unwrap_or(&Way::Lsm)),
        dentry_is_mounted_on: vmlinux.dentry_is_mounted_on(),
        pins_device,
        before_functions: u32::from(*way == Ok(Way::ModifyReturn)),
        reserved: 0,
    };
    let btf = Btf::from_sys_fs()
        .map_err(|error| KernelError::Object(Box::new(EbpfError::BtfError(error))))?;
    let ebpf = EbpfLoader::new()
        .btf(Some(&btf))
        .verifier_log_level(programs::verifier_log_level())
        .override_global("OFFSETS", offsets.as_bytes(), true)
        .override_global("HOST", host.as_bytes(), true)
        .map_max_entries("SCRATCH", scratch_slots)
        .load(OBJECT)
        .map_err(|error| KernelError::Object(Box::new(error)))?;
    let mut programs = Programs::new(ebpf);
    let stands_in = |hook: &Hook| hook.attach.stands_in();
    let mut states = programs.load(vmlinux, &btf, way, |hook| !stands_in(hook));
    // What stands in for the LSM's hooks is loaded where they are missing, or to find out.
    if sizes.stand_ins || !is_loaded(&states, MAIN_HOOK) {
        states.append(&mut programs.load(vmlinux, &btf, way, stands_in));
    }
    Ok((programs, states))
}

/// Scratch slots for each CPU: a task can be preempted while it holds one.
const SCRATCH_SLOTS_A_CPU: u32 = 8;
/// Of 33 KiB each.
const SCRATCH_SLOTS_AT_LEAST: u32 = 64;

/// Address of the kernel's `rename_lock`, or 0 where the kernel does not tell. The list has a hundred
/// thousand lines and this is far down, so it is read in pieces and only as far as needed.
pub(super) fn rename_lock() -> u64 {
    const SYMBOL: &str = " rename_lock";
    let Ok(symbols) = File::open("/proc/kallsyms") else {
        return 0;
    };
    let lines = BufReader::with_capacity(1 << 16, symbols).lines();
    lines
        .map_while(Result::ok)
        .find(|line| line.ends_with(SYMBOL))
        .and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
        .unwrap_or(0)
}
