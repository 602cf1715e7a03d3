//! What `/proc` tells, where names and arguments are what processes want them to be.

use std::fmt::Write as _;

use crate::{
    enrich::container_id,
    event::split_args,
    sandbox::{
        cgroup::below_root,
        inherited::flags_in,
        view::{Mountinfo, mounts_in},
    },
};

/// Of each whole line of a mountinfo there is a mount or nothing, and it comes back if the kernel writes it again.
pub(super) fn mountinfo(bytes: &[u8]) {
    let mounts = mounts_in(bytes);
    let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
    assert!(mounts.len() <= lines);
    for mount in &mounts {
        let line = written(mount);
        assert_eq!(mounts_in(&line), std::slice::from_ref(mount));
        // What is cut off is left out.
        assert!(mounts_in(&line[..line.len() - 1]).is_empty());
    }
}

/// The line of a mount, as `show_mountinfo` in fs/proc_namespace.c writes it.
fn written(line: &Mountinfo) -> Vec<u8> {
    let escaped = |path: &[u8]| -> Vec<u8> {
        path.iter()
            .flat_map(|&byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
                other => vec![other],
            })
            .collect()
    };
    let Mountinfo {
        id,
        mount,
        writable,
    } = line;
    let device = mount.dev.0;
    let mut start = String::new();
    let _ = write!(start, "{id} 1 {}:{} ", device >> 20, device & 0xf_ffff);
    let options: &[u8] = if *writable { b" rw,noatime" } else { b" ro" };
    [
        start.as_bytes(),
        &escaped(&mount.root),
        b" ",
        &escaped(&mount.point),
        options,
        b" shared:1 - ",
        mount.fs_type.as_bytes(),
        b" none rw\n",
    ]
    .concat()
}

/// What is read about a process is nothing, or a part of what there is.
pub(super) fn process(bytes: &[u8]) {
    let has = |part: &[u8]| part.is_empty() || bytes.windows(part.len()).any(|at| at == part);
    if let Some(id) = container_id(bytes) {
        assert!(id.len() == 64 && has(id.as_bytes()));
    }
    if let Some(path) = below_root(bytes) {
        let path = path.as_os_str().as_encoded_bytes();
        assert!(has(path) && !path.contains(&b'\n'));
    }
    let _ = flags_in(bytes);
    let args = split_args(bytes);
    let mut joined = args.join(&0);
    if bytes.ends_with(b"\0") {
        joined.push(0);
    }
    assert_eq!(joined, bytes);
}
