//! The programs of the LSM's hooks, loaded so that they run before the functions that call those hooks.
//!
//! For kernels on which BPF is not among the active security modules: `security_file_open` asks those that are, and a
//! program of the kind `BPF_MODIFY_RETURN` (Linux ≥ 5.7) runs before it and may answer in its place. It gets the same
//! arguments, but for what the function has yet to work out, and its answer means the same: 0 leaves it to whoever comes
//! after, an error is the function's. Where the function has no answer, the program just runs before it (`fentry`).
//!
//! aya has no such kind of program, so its second half is done here: aya makes the maps, its parser reads the object once
//! more and puts the maps' descriptors in, and what comes of it is loaded by [`bpf`].

use std::{
    collections::{HashMap, HashSet},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd},
};

use aya::{Ebpf, maps::Map};
use aya_obj::generated::bpf_attach_type::{BPF_MODIFY_RETURN, BPF_TRACE_FENTRY};

use super::{
    bpf, btf,
    hooks::Hook,
    programs::{in_words, wants_log},
};

/// The object, ready to load its programs from.
pub(super) struct Object {
    object: aya_obj::Object,
    types: OwnedFd,
}

impl Object {
    /// Of the same bytes that `ebpf` and its maps were made of.
    pub(super) fn new(bytes: &[u8], ebpf: &Ebpf) -> Result<Self, String> {
        let mut object = aya_obj::Object::parse(bytes).map_err(|error| error.to_string())?;
        let features = aya::features().btf().ok_or("this kernel takes no BTF")?;
        let types = object
            .fixup_and_sanitize_btf(features)
            .map_err(|error| error.to_string())?
            .ok_or("the kernel object has no BTF")?
            .to_bytes();
        let types = bpf::load_types(&types).map_err(|error| format!("BPF_BTF_LOAD: {error}"))?;
        let made: HashMap<&str, RawFd> = ebpf
            .maps()
            .filter_map(|(name, map)| Some((name, descriptor(map)?)))
            .collect();
        let maps = std::mem::take(&mut object.maps);
        let maps = maps
            .iter()
            .filter_map(|(name, map)| Some((name.as_str(), *made.get(name.as_str())?, map)));
        let sections: HashSet<usize> = object.functions.keys().map(|(index, _)| *index).collect();
        object
            .relocate_maps(maps, &sections)
            .and_then(|()| object.relocate_calls(&sections))
            .map_err(|error| super::programs::with_cause(&error))?;
        object.sanitize_functions(aya::features());
        Ok(Self { object, types })
    }

    /// Loads the program of a hook. Linux ≥ 5.7.
    pub(super) fn load(&self, hook: &Hook, kernel: &btf::Btf) -> Result<OwnedFd, String> {
        let name = hook.security_function();
        let function = kernel
            .security_function(&name)
            .ok_or_else(|| format!("this kernel's BTF has no {name}"))?;
        let program = self.object.programs.get(hook.program);
        let code = program.and_then(|program| self.object.functions.get(&program.function_key()));
        let (Some(program), Some(code)) = (program, code) else {
            return Err("not in the kernel object".to_owned());
        };
        let tracing = bpf::Tracing {
            name: hook.program,
            instructions: &code.instructions,
            license: &program.license,
            attach: if function.answers {
                BPF_MODIFY_RETURN
            } else {
                BPF_TRACE_FENTRY
            },
            function: function.id,
            types: self.types.as_fd(),
            functions: &code.func_info.func_info_bytes(),
            function_bytes: code.func_info_rec_size,
        };
        let log_bytes = if wants_log() { LOG_BYTES } else { 0 };
        bpf::load_program(&tracing, log_bytes)
            .map_err(|refusal| in_words(&refusal.error, &refusal.log))
    }
}

/// Room for the verifier's words.
const LOG_BYTES: usize = 1 << 24;

/// The descriptor of a map of a kind that the object has.
fn descriptor(map: &Map) -> Option<RawFd> {
    match map {
        Map::Array(map)
        | Map::ArrayOfMaps(map)
        | Map::HashMap(map)
        | Map::HashOfMaps(map)
        | Map::LpmTrie(map)
        | Map::LruHashMap(map)
        | Map::PerCpuArray(map)
        | Map::PerCpuHashMap(map)
        | Map::PerCpuLruHashMap(map)
        | Map::PerfEventArray(map)
        | Map::RingBuf(map) => Some(map.fd().as_fd().as_raw_fd()),
        _ => None,
    }
}
