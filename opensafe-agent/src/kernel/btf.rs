//! Looks up where the running kernel keeps the members of its structures.
//!
//! A reader of the BTF type format (Documentation/bpf/btf.rst) for one question only: the byte offset
//! of `struct.member.member`, anonymous members included. aya parses the same data and keeps its
//! members private; the crate that does (btf-rs) is under the LGPL, which a static binary under
//! Apache-2.0 OR MIT cannot take in.

use std::collections::HashMap;

use opensafe_common::layout::Offsets;
use zerocopy::{FromBytes, IntoBytes};

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

/// Parsed type information.
pub(super) struct Btf {
    types: Vec<Type>,
    structs: HashMap<String, usize>,
}

struct Type {
    kind: u32,
    /// Referenced type, for the kinds that have one.
    target: u32,
    members: Vec<Member>,
}

struct Member {
    name: String,
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
        Self::parse(&data)
    }

    /// From the bytes of a BTF blob in this machine's byte order.
    pub(super) fn parse(data: &[u8]) -> Result<Self, BtfError> {
        let word = |at: usize| read_word(data, at);
        let header_len = word(4)? as usize;
        let types_at = header_len + word(8)? as usize;
        let types_end = types_at + word(12)? as usize;
        let strings_at = header_len + word(16)? as usize;
        let string = |offset: u32| read_string(data, strings_at + offset as usize);

        // Type 0 is void.
        let mut types = vec![Type {
            kind: 0,
            target: 0,
            members: Vec::new(),
        }];
        let mut structs = HashMap::new();
        let mut at = types_at;
        while at < types_end {
            let (name, info, target) = (word(at)?, word(at + 4)?, word(at + 8)?);
            at += 12;
            let (kind, count, bitfields) =
                (info >> 24 & 0x1f, (info & 0xffff) as usize, info >> 31 == 1);
            let mut members = Vec::new();
            match kind {
                kind::INT | kind::VAR | kind::DECL_TAG => at += 4,
                kind::ARRAY => at += 12,
                kind::STRUCT | kind::UNION => {
                    for _ in 0..count {
                        let bits = word(at + 8)?;
                        members.push(Member {
                            name: string(word(at)?)?,
                            target: word(at + 4)?,
                            bits: if bitfields { bits & 0xff_ffff } else { bits },
                        });
                        at += 12;
                    }
                    let name = string(name)?;
                    if kind == kind::STRUCT && !name.is_empty() {
                        structs.entry(name).or_insert(types.len());
                    }
                }
                kind::ENUM | kind::FUNC_PROTO => at += 8 * count,
                kind::DATASEC | kind::ENUM64 => at += 12 * count,
                _ => {}
            }
            types.push(Type {
                kind,
                target,
                members,
            });
        }
        Ok(Self { types, structs })
    }

    /// Byte offset of `struct.member…`.
    pub(super) fn offset(&self, path: &'static str) -> Result<u32, BtfError> {
        self.find(path).ok_or(BtfError::Missing { path })
    }

    /// All offsets that the kernel programs need. Those in [`Offsets::OPTIONAL`] are 0 if missing.
    pub(super) fn offsets(&self) -> Result<Offsets, BtfError> {
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
        let mut current = *self.structs.get(names.next()?)?;
        let mut bits = 0;
        for name in names {
            let (offset, target) = self.member(current, name, 0)?;
            bits += offset;
            current = target;
        }
        Some(bits / 8)
    }

    fn member(&self, of: usize, name: &str, depth: u32) -> Option<(u32, usize)> {
        // Anonymous members nest a few levels; the bound is for malformed data.
        if depth > 16 {
            return None;
        }
        for member in &self.types.get(of)?.members {
            let target = self.resolve(member.target)?;
            if member.name == name {
                return Some((member.bits, target));
            }
            if member.name.is_empty()
                && let Some((bits, found)) = self.member(target, name, depth + 1)
            {
                return Some((member.bits + bits, found));
            }
        }
        None
    }

    /// The type behind names and qualifiers.
    fn resolve(&self, id: u32) -> Option<usize> {
        let mut id = id as usize;
        for _ in 0..32 {
            let found = self.types.get(id)?;
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

fn read_word(data: &[u8], at: usize) -> Result<u32, BtfError> {
    data.get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map(u32::from_ne_bytes)
        .ok_or(BtfError::Malformed { at })
}

fn read_string(data: &[u8], at: usize) -> Result<String, BtfError> {
    let rest = data.get(at..).ok_or(BtfError::Malformed { at })?;
    let end = rest
        .iter()
        .position(|&byte| byte == 0)
        .ok_or(BtfError::Malformed { at })?;
    Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
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
    }

    #[test]
    fn cut_off_data_are_an_error() {
        assert!(matches!(
            Btf::parse(&[0x9f, 0xeb, 1, 0]),
            Err(BtfError::Malformed { .. })
        ));
    }

    proptest::proptest! {
        #[test]
        fn no_data_make_it_panic(data: Vec<u8>) {
            let _ = Btf::parse(&data);
        }
    }
}
