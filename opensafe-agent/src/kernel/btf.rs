//! Looks up where the running kernel keeps the members of its structures.
//!
//! A reader of the BTF type format (Documentation/bpf/btf.rst) for one question only: the byte offset
//! of `struct.member.member`, anonymous members included. aya parses the same data and keeps its
//! members private; the crate that does (btf-rs) is under the LGPL, which a static binary under
//! Apache-2.0 OR MIT cannot take in.

use std::collections::{HashMap, HashSet};

use opensafe_common::layout::Offsets;
use zerocopy::{FromBytes, IntoBytes};

use crate::enforcement::Way;

/// The kernel's own type information.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

/// What can go wrong with BTF.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}\n  the kernel needs CONFIG_DEBUG_INFO_BTF=y")]
    Read {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The data are not BTF, or cut off.
    #[error("malformed BTF at byte {at}")]
    Malformed {
        /// Where.
        at: usize,
    },
    /// This kernel has no such member.
    #[error("this kernel's BTF has no `{path}`")]
    Missing {
        /// `struct.member…`.
        path: &'static str,
    },
}

/// Type information, with an index to where each type is; members are read when they are asked for,
/// since of the kernel's hundred thousand types a few dozen are.
pub(crate) struct Btf {
    data: Vec<u8>,
    strings_at: usize,
    /// Where each type is; type 0, which is void and nowhere, is at 0.
    types: Vec<usize>,
    structs: HashMap<Vec<u8>, usize>,
    /// The functions that stand for LSM hooks (`bpf_lsm_…`), by the hooks' names.
    hooks: HashMap<Vec<u8>, usize>,
    /// The functions that call them (`security_…`), by their names.
    callers: HashMap<Vec<u8>, usize>,
}

/// A function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Its number among the types.
    pub(super) id: u32,
    /// Whether it returns anything.
    pub(super) answers: bool,
    /// How many arguments it takes.
    pub(super) arguments: usize,
}

/// The fixed part of a type.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    count: usize,
    bitfields: bool,
    /// Referenced type, for the kinds that have one.
    target: u32,
}

/// One member of a struct or union.
struct Member<'a> {
    name: &'a [u8],
    target: u32,
    bits: u32,
}

/// Kinds, from include/uapi/linux/btf.h.
mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

impl Btf {
    /// The running kernel's.
    pub(super) fn vmlinux() -> Result<Self, BtfError> {
        let data = std::fs::read(VMLINUX).map_err(|source| BtfError::Read {
            path: VMLINUX.to_owned(),
            source,
        })?;
        Self::parse(data, Offsets::PATHS)
    }

    /// From the bytes of a BTF blob in this machine's byte order, for looking up `paths`.
    pub(crate) fn parse(data: Vec<u8>, paths: &[&str]) -> Result<Self, BtfError> {
        let wanted: HashSet<&[u8]> = paths
            .iter()
            .filter_map(|path| path.split('.').next())
            .map(str::as_bytes)
            .collect();
        let word = |at: usize| read_word(&data, at);
        let header_len = word(4)? as usize;
        let types_at = header_len + word(8)? as usize;
        let types_end = types_at + word(12)? as usize;
        let strings_at = header_len + word(16)? as usize;

        let mut types = vec![0];
        let mut structs = HashMap::new();
        let mut hooks = HashMap::new();
        let mut callers = HashMap::new();
        let mut at = types_at;
        while at < types_end {
            let head = read_type(&data, at)?;
            if head.kind == kind::STRUCT && head.name != 0 {
                let name = read_string(&data, strings_at + head.name as usize)?;
                if wanted.contains(name) {
                    structs.entry(name.to_vec()).or_insert(types.len());
                }
            }
            if head.kind == kind::FUNC {
                let name = read_string(&data, strings_at + head.name as usize)?;
                if let Some(hook) = name.strip_prefix(b"bpf_lsm_") {
                    hooks.insert(hook.to_vec(), types.len());
                } else if name.starts_with(b"security_") {
                    callers.insert(name.to_vec(), types.len());
                }
            }
            types.push(at);
            at += TYPE_BYTES + head.tail_bytes();
        }
        Ok(Self {
            data,
            strings_at,
            types,
            structs,
            hooks,
            callers,
        })
    }

    /// Byte offset of `struct.member…`.
    pub(crate) fn offset(&self, path: &'static str) -> Result<u32, BtfError> {
        self.find(path).ok_or(BtfError::Missing { path })
    }

    /// Whether this kernel has an LSM hook of that name.
    pub(crate) fn has_hook(&self, name: &str) -> bool {
        self.hooks.contains_key(name.as_bytes())
    }

    /// A function that calls an LSM hook, by its name.
    pub(super) fn security_function(&self, name: &str) -> Option<Function> {
        self.function(*self.callers.get(name.as_bytes())?)
    }

    /// Which argument of the `inode_setattr` hook, or of the function that calls it, is the dentry: before it came another
    /// one, in Linux 6.3 to the hook, and earlier to the function.
    pub(crate) fn setattr_dentry(&self, way: Way) -> u32 {
        let function = match way {
            Way::Lsm => self.hooks.get(&b"inode_setattr"[..]),
            Way::ModifyReturn => self.callers.get(&b"security_inode_setattr"[..]),
        };
        let arguments = function
            .and_then(|id| self.function(*id))
            .map(|function| function.arguments);
        u32::from(arguments != Some(2))
    }

    fn function(&self, id: usize) -> Option<Function> {
        let prototype = self.get(self.get(id)?.target as usize)?;
        Some(Function {
            id: u32::try_from(id).ok()?,
            answers: prototype.target != 0,
            arguments: prototype.count,
        })
    }

    /// `DCACHE_MOUNTED`, a macro up to Linux 6.13 (include/linux/dcache.h).
    pub(crate) fn dentry_is_mounted_on(&self) -> u32 {
        const BEFORE_6_14: u32 = 0x0001_0000;
        self.enumerator("dentry_flags", "DCACHE_MOUNTED")
            .unwrap_or(BEFORE_6_14)
    }

    /// The value of an enumerator of a named enumeration.
    fn enumerator(&self, enumeration: &str, name: &str) -> Option<u32> {
        let string = |offset| read_string(&self.data, self.strings_at + offset as usize).ok();
        let of = (1..self.types.len()).find(|&id| {
            self.get(id).is_some_and(|head| {
                head.kind == kind::ENUM && string(head.name) == Some(enumeration.as_bytes())
            })
        })?;
        let first = self.types.get(of)? + TYPE_BYTES;
        (0..self.get(of)?.count).find_map(|index| {
            let at = first + ENUMERATOR_BYTES * index;
            let found = string(read_word(&self.data, at).ok()?)?;
            (found == name.as_bytes()).then(|| read_word(&self.data, at + 4).ok())?
        })
    }

    /// All offsets that the kernel programs need. Those in [`Offsets::OPTIONAL`] are 0 if missing.
    pub(crate) fn offsets(&self) -> Result<Offsets, BtfError> {
        let mut words = Vec::with_capacity(Offsets::PATHS.len());
        for &path in Offsets::PATHS {
            match self.offset(path) {
                Ok(offset) => words.push(offset),
                Err(_) if Offsets::OPTIONAL.contains(&path) => words.push(0),
                Err(error) => return Err(error),
            }
        }
        // As many words as the struct has fields: both come from the same list.
        Offsets::read_from_bytes(words.as_slice().as_bytes())
            .map_err(|_| BtfError::Malformed { at: 0 })
    }

    fn find(&self, path: &str) -> Option<u32> {
        let mut names = path.split('.');
        let mut current = *self.structs.get(names.next()?.as_bytes())?;
        let mut bits: u32 = 0;
        let mut left = MAX_MEMBERS;
        for name in names {
            let (offset, target) = self.member(current, name.as_bytes(), 0, &mut left)?;
            bits = bits.checked_add(offset)?;
            current = target;
        }
        Some(bits / 8)
    }

    /// Where a member is, and its type. `left` is how many may be looked at yet.
    fn member(&self, of: usize, name: &[u8], depth: u32, left: &mut usize) -> Option<(u32, usize)> {
        // Anonymous members nest a few levels; the bounds are for malformed data, whose types may hold themselves many
        // times over.
        if depth > 16 {
            return None;
        }
        let head = self.get(of)?;
        if !matches!(head.kind, kind::STRUCT | kind::UNION) {
            return None;
        }
        for index in 0..head.count {
            *left = left.checked_sub(1)?;
            let member = self.nth_member(of, head, index)?;
            let target = self.resolve(member.target)?;
            if member.name == name {
                return Some((member.bits, target));
            }
            if member.name.is_empty()
                && let Some((bits, found)) = self.member(target, name, depth + 1, left)
            {
                return Some((member.bits.checked_add(bits)?, found));
            }
        }
        None
    }

    fn nth_member(&self, of: usize, head: Type, index: usize) -> Option<Member<'_>> {
        let at = self.types.get(of)? + TYPE_BYTES + MEMBER_BYTES * index;
        let word = |at| read_word(&self.data, at).ok();
        let bits = word(at + 8)?;
        Some(Member {
            name: read_string(&self.data, self.strings_at + word(at)? as usize).ok()?,
            target: word(at + 4)?,
            bits: if head.bitfields {
                bits & 0xff_ffff
            } else {
                bits
            },
        })
    }

    fn get(&self, id: usize) -> Option<Type> {
        match *self.types.get(id)? {
            0 => None,
            at => read_type(&self.data, at).ok(),
        }
    }

    /// The type behind names and qualifiers.
    fn resolve(&self, id: u32) -> Option<usize> {
        let mut id = id as usize;
        for _ in 0..32 {
            let Some(found) = self.get(id) else {
                return Some(id);
            };
            match found.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    id = found.target as usize;
                }
                _ => return Some(id),
            }
        }
        None
    }
}

/// Members that are looked at for one path at most. The kernel's largest structures have some hundred.
const MAX_MEMBERS: usize = 1 << 13;
/// Bytes of a name at most; the kernel's own have less than 512 (`KSYM_NAME_LEN` in include/linux/kallsyms.h).
const MAX_NAME: usize = 4096;
/// Bytes of a type's fixed part, and of a member.
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;
/// `struct btf_enum`.
const ENUMERATOR_BYTES: usize = 8;

impl Type {
    /// Bytes that follow the fixed part.
    const fn tail_bytes(self) -> usize {
        match self.kind {
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCT | kind::UNION => MEMBER_BYTES * self.count,
            kind::ENUM | kind::FUNC_PROTO => 8 * self.count,
            kind::DATASEC | kind::ENUM64 => 12 * self.count,
            _ => 0,
        }
    }
}

fn read_type(data: &[u8], at: usize) -> Result<Type, BtfError> {
    let info = read_word(data, at + 4)?;
    Ok(Type {
        name: read_word(data, at)?,
        kind: info >> 24 & 0x1f,
        count: (info & 0xffff) as usize,
        bitfields: info >> 31 == 1,
        target: read_word(data, at + 8)?,
    })
}

fn read_word(data: &[u8], at: usize) -> Result<u32, BtfError> {
    data.get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_ne_bytes)
        .ok_or(BtfError::Malformed { at })
}

fn read_string(data: &[u8], at: usize) -> Result<&[u8], BtfError> {
    let rest = data.get(at..).ok_or(BtfError::Malformed { at })?;
    let end = rest
        .iter()
        .take(MAX_NAME)
        .position(|&byte| byte == 0)
        .ok_or(BtfError::Malformed { at })?;
    Ok(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_is_found_in_the_running_kernel() {
        let Ok(btf) = Btf::vmlinux() else {
            println!("skip: this kernel has no {VMLINUX}");
            return;
        };
        let offsets = btf.offsets().unwrap();
        assert_ne!(offsets.task_cgroups, 0);
        assert_ne!(offsets.dentry_parent, 0);
        assert_eq!(btf.offset("dentry.d_name.len").unwrap() % 4, 0);
        assert!(btf.offset("dentry.no_such_member").is_err());
        for way in [Way::Lsm, Way::ModifyReturn] {
            assert!(btf.setattr_dentry(way) < 2);
        }
        let open = btf.security_function("security_file_open").unwrap();
        assert_eq!((open.answers, open.arguments), (true, 1));
        let free = btf.security_function("security_task_free").unwrap();
        assert_eq!((free.answers, free.arguments), (false, 1));
        assert_eq!(btf.security_function("security_no_such_function"), None);
        assert!(btf.dentry_is_mounted_on().is_power_of_two());
        assert_eq!(btf.enumerator("dentry_flags", "DCACHE_NO_SUCH_FLAG"), None);
        assert_eq!(
            btf.enumerator("hrtimer_restart", "HRTIMER_RESTART"),
            Some(1)
        );
        assert!(!btf.has_hook("no_such_hook"));
    }

    #[test]
    fn cut_off_data_are_an_error() {
        assert!(matches!(
            Btf::parse(vec![0x9f, 0xeb, 1, 0], &[]),
            Err(BtfError::Malformed { .. })
        ));
    }

    proptest::proptest! {
        #[test]
        fn no_data_make_it_panic(data: Vec<u8>) {
            if let Ok(btf) = Btf::parse(data, Offsets::PATHS) {
                let _ = btf.offsets();
            }
        }
    }
}
