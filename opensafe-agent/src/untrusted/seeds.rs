//! The parts of the corpus that are no text, as they are made: `UPDATE_CORPUS=1 cargo test seeds` writes them anew.

use std::collections::BTreeMap;

use opensafe_common::{
    event::{
        ConnectBody, ExitBody, FileBody, ForkBody, Header, Kind, MAX_ARGS_BYTES,
        MAX_REQUESTED_BYTES, OpenFailedBody, OperationBody, flag,
    },
    layout::Offsets,
    operation::{How, Operation},
    socket::{AF_INET, AF_INET6, AF_UNIX},
    verdict::{Access, Verdict},
};
use proptest::prelude::*;
use zerocopy::{Immutable, IntoBytes};

use super::tests::folder;
use crate::{kernel::btf::Btf, view::Dev};

/// Type information, while it is made.
#[derive(Default)]
struct Blob {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

/// Kinds, from include/uapi/linux/btf.h.
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const CONST: u32 = 10;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;

impl Blob {
    fn string(&mut self, text: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if text.is_empty() {
            return 0;
        }
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    /// Adds a type with what follows it; gives its id.
    fn add(&mut self, name: &str, info: u32, target: u32, tail: &[u32]) -> u32 {
        let name = self.string(name);
        self.types
            .extend_from_slice([name, info, target].as_bytes());
        self.types.extend_from_slice(tail.as_bytes());
        self.count += 1;
        self.count
    }

    fn structure(&mut self, kind: u32, name: &str, members: &[(&str, u32, u32)]) -> u32 {
        let mut tail = Vec::new();
        for &(member, target, bits) in members {
            tail.extend([self.string(member), target, bits]);
        }
        let count = u32::try_from(members.len()).unwrap();
        self.add(name, kind << 24 | count, 0, &tail)
    }

    fn bytes(mut self) -> Vec<u8> {
        let strings_at = self
            .string("")
            .max(u32::try_from(self.types.len()).unwrap());
        // magic, version 1, no flags; the header's length, the types' place and length, the strings'.
        let lengths = [24, 0, strings_at, strings_at];
        let strings = u32::try_from(self.strings.len()).unwrap();
        [
            &[0x9f, 0xeb, 1, 0][..],
            lengths.as_bytes(),
            strings.as_bytes(),
            &self.types,
            &self.strings,
        ]
        .concat()
    }
}

/// What is laid out below a name.
#[derive(Default)]
struct Tree(BTreeMap<&'static str, (usize, Self)>);

/// Structures that have every path at an offset which is told by `offset`, some members behind another name or in a union
/// without one.
fn laid_out(
    offset: impl Fn(&'static str) -> u32,
    twist: usize,
) -> (Vec<u8>, BTreeMap<&'static str, u32>) {
    let mut root = Tree::default();
    for (number, path) in Offsets::PATHS.iter().enumerate() {
        let mut tree = &mut root;
        for name in path.split('.') {
            tree = &mut tree
                .0
                .entry(name)
                .or_insert_with(|| (number, Tree::default()))
                .1;
        }
    }
    let mut blob = Blob::default();
    blob.string("");
    let mut expected = BTreeMap::new();
    for (name, (_, tree)) in &root.0 {
        add(&mut blob, name, name, tree, &offset, twist);
    }
    for path in Offsets::PATHS {
        let mut so_far = String::new();
        let mut total = 0;
        for (depth, name) in path.split('.').enumerate() {
            so_far = if depth == 0 {
                name.to_owned()
            } else {
                format!("{so_far}.{name}")
            };
            if depth > 0 {
                total += offset_of(&so_far, &offset);
            }
        }
        expected.insert(*path, total);
    }
    (blob.bytes(), expected)
}

/// Bytes at which a member lies in what it is in: those of the first path that begins so.
fn offset_of(path: &str, offset: impl Fn(&'static str) -> u32) -> u32 {
    let begins = |whole: &&&'static str| {
        whole
            .strip_prefix(path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    Offsets::PATHS
        .iter()
        .find(begins)
        .map_or(0, |path| offset(path))
}

fn add(
    blob: &mut Blob,
    name: &str,
    path: &str,
    tree: &Tree,
    offset: &impl Fn(&'static str) -> u32,
    twist: usize,
) -> u32 {
    let mut members = Vec::new();
    for (member, (number, below)) in &tree.0 {
        let path = format!("{path}.{member}");
        let mut target = if below.0.is_empty() {
            0
        } else {
            add(blob, "", &path, below, offset, twist)
        };
        let bits = 8 * offset_of(&path, offset);
        if target != 0 && (number + twist).is_multiple_of(2) {
            let qualified = blob.add("", CONST << 24, target, &[]);
            target = blob.add("other_name", TYPEDEF << 24, qualified, &[]);
        }
        if (number + twist).is_multiple_of(3) {
            let union = blob.structure(UNION, "", &[("beside", 0, 0), (member, target, 0)]);
            members.push(("", union, bits));
        } else {
            members.push((*member, target, bits));
        }
    }
    blob.structure(STRUCT, name, &members)
}

/// A structure that holds itself eight times over, without a name.
fn endless() -> Vec<u8> {
    let mut blob = Blob::default();
    let members = [("", 1, u32::MAX); 8];
    blob.structure(STRUCT, "task_struct", &members);
    blob.structure(STRUCT, "dentry", &[("", 2, u32::MAX), ("", 2, 8)]);
    blob.bytes()
}

fn hooks() -> Vec<u8> {
    let mut blob = Blob::default();
    let prototype = blob.add("", FUNC_PROTO << 24 | 2, 0, &[0, 0, 0, 0]);
    blob.add("bpf_lsm_inode_setattr", FUNC << 24, prototype, &[]);
    blob.add("bpf_lsm_file_open", FUNC << 24, 99, &[]);
    let (flags, mounted) = (blob.string("dentry_flags"), blob.string("DCACHE_MOUNTED"));
    blob.types
        .extend_from_slice([flags, 6 << 24 | 1, 4, mounted, 1 << 15].as_bytes());
    blob.bytes()
}

proptest! {
    #[test]
    fn every_field_is_found_where_it_is_laid(
        offsets in prop::collection::vec(0..4000_u32, Offsets::PATHS.len()),
        twist in 0..6_usize,
    ) {
        let offset = |path: &'static str| {
            let number = Offsets::PATHS.iter().position(|known| *known == path).unwrap();
            offsets[number]
        };
        let (data, expected) = laid_out(offset, twist);
        let btf = Btf::parse(data.clone(), Offsets::PATHS).unwrap();
        for (path, at) in expected {
            prop_assert_eq!(btf.offset(path).ok(), Some(at), "{}", path);
        }
        // Cut off anywhere, it is an error or knows less.
        for end in [data.len() / 3, data.len() / 2, data.len() - 1] {
            super::check("btf", &data[..end]);
        }
    }
}

#[test]
fn types_that_hold_themselves_are_looked_through_in_no_time() {
    let start = std::time::Instant::now();
    super::check("btf", &endless());
    assert!(start.elapsed() < std::time::Duration::from_secs(10));
}

fn record(
    kind: Kind,
    change: impl FnOnce(&mut Header),
    body: &(impl IntoBytes + Immutable),
    strings: [&[u8]; 3],
) -> Vec<u8> {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap();
    let [path, requested, args] = strings;
    let mut header = Header {
        kind: kind as u8,
        verdict: Verdict::Deny as u8,
        flags: flag::ENFORCED,
        generation: 1,
        pid: 4711,
        tid: 4712,
        parent_pid: 4700,
        uid: 1000,
        gid: 1000,
        time_ns: 1_000_000,
        path_len: length(path),
        requested_len: length(requested),
        args_len: length(args),
        access: Access::READ,
        comm: *b"sh\n\xff\x1b[2J\0\0\0\0\0\0\0\0",
        ..Header::default()
    };
    change(&mut header);
    [header.as_bytes(), body.as_bytes(), path, requested, args].concat()
}

fn records() -> Vec<(&'static str, Vec<u8>)> {
    let file = FileBody {
        magic: 0xef53,
        inode: 7,
        dev: Dev::new(8, 2).0,
        mode: 0o100_644,
    };
    let peer = |family, address: [u8; 16]| ConnectBody {
        address,
        family,
        port: 443,
        transport: 1,
        socket_type: 1,
        protocol: 6,
        ..ConnectBody::NONE
    };
    let mut mapped = [0; 16];
    mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
    let unix = ConnectBody {
        dev: Dev::new(8, 1).0,
        ..peer(AF_UNIX, [0; 16])
    };
    let operation = |operation: Operation, how: How| OperationBody {
        operation: operation as u16,
        how: how as u16,
        number: 9,
        target_pid: 1,
        ..OperationBody::default()
    };
    let how = |number| How::from_u16(number).unwrap();
    let long = [b"/".as_slice(), &[0xff; 254]].concat().repeat(16);
    let none = [&b""[..]; 3];
    let plain = |_: &mut Header| ();
    vec![
        (
            "exec",
            record(
                Kind::Exec,
                |header| {
                    header.verdict = Verdict::Allow as u8;
                    header.flags = flag::ARGS_TRUNCATED;
                },
                &file,
                [b"/b/sh", b"./sh", b"sh\0-c\0export TOKEN=abc\0\0"],
            ),
        ),
        (
            "exec-gate",
            record(
                Kind::ExecGate,
                |header| header.flags = 0,
                &file,
                [b"/b/sh", b"sh", b""],
            ),
        ),
        (
            "file",
            record(
                Kind::File,
                plain,
                &file,
                [b"/a/\xff\n\xe2\x80\xae", b"../x\x1b", b""],
            ),
        ),
        (
            "file-usual",
            record(
                Kind::File,
                |header| header.comm = *b"rustc\0\0\0\0\0\0\0\0\0\0\0",
                &file,
                [
                    b"/home/me/work/target/debug/deps/libserde-0123456789abcdef.rmeta",
                    b"target/debug/deps/libserde-0123456789abcdef.rmeta",
                    b"",
                ],
            ),
        ),
        (
            "file-longest",
            record(
                Kind::File,
                plain,
                &file,
                [&long, &[b'\\'; MAX_REQUESTED_BYTES], &[0; MAX_ARGS_BYTES]],
            ),
        ),
        (
            "file-partial",
            record(
                Kind::File,
                |header| {
                    header.flags =
                        flag::PATH_PARTIAL | flag::NAMELESS | flag::BELOW | flag::TENTATIVE;
                },
                &file,
                [b"no/slash", b"", b""],
            ),
        ),
        ("not-created", record(Kind::NotCreated, plain, &file, none)),
        (
            "unknown-superblock",
            record(Kind::UnknownSuperblock, plain, &file, [b"/x", b"", b""]),
        ),
        (
            "connect",
            record(Kind::Connect, plain, &peer(AF_INET, mapped), none),
        ),
        (
            "connect-unspecified",
            record(
                Kind::Connect,
                plain,
                &ConnectBody {
                    port: 0,
                    ..peer(AF_INET6, [0; 16])
                },
                none,
            ),
        ),
        (
            "unix",
            record(Kind::Connect, plain, &unix, [b"/run/s\0k", b"", b""]),
        ),
        (
            "unix-abstract",
            record(
                Kind::Connect,
                plain,
                &peer(AF_UNIX, [0; 16]),
                [b"", b"a\0\n\xff", b""],
            ),
        ),
        (
            "socket",
            record(Kind::Socket, plain, &peer(17, [0; 16]), none),
        ),
        (
            "bind",
            record(
                Kind::Bind,
                |header| header.flags |= flag::EPERM,
                &peer(AF_INET, mapped),
                none,
            ),
        ),
        (
            "signal",
            record(
                Kind::Operation,
                plain,
                &operation(Operation::ALL[0], how(1)),
                none,
            ),
        ),
        (
            "operation",
            record(
                Kind::Operation,
                plain,
                &OperationBody {
                    dev: Dev::new(8, 1).0,
                    ..operation(Operation::ALL[11], how(2))
                },
                [b"/mnt", b"", b""],
            ),
        ),
        (
            "fork",
            record(
                Kind::Fork,
                plain,
                &ForkBody {
                    child_pid: 4713,
                    reserved: 0,
                },
                none,
            ),
        ),
        (
            "open-failed",
            record(
                Kind::OpenFailed,
                |header| header.access = Access::READ,
                &OpenFailedBody {
                    errno: 13,
                    reserved: 0,
                },
                [b"", b"../key", b""],
            ),
        ),
        (
            "exit",
            record(
                Kind::Exit,
                plain,
                &ExitBody {
                    status: 9,
                    reserved: 0,
                },
                none,
            ),
        ),
    ]
}

#[test]
fn seeds_are_as_they_are_made() {
    let offset = |path: &'static str| u32::try_from(path.len()).unwrap() * 8;
    let blobs = [
        ("laid-out", laid_out(offset, 0).0),
        ("twisted", laid_out(offset, 1).0),
        ("endless", endless()),
        ("hooks", hooks()),
    ];
    let records = records()
        .into_iter()
        .map(|(name, bytes)| ("event", name, bytes));
    let blobs = blobs.into_iter().map(|(name, bytes)| ("btf", name, bytes));
    for (parser, name, bytes) in records.chain(blobs) {
        let path = folder(parser).join(name);
        if std::env::var_os("UPDATE_CORPUS").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        let kept = std::fs::read(&path).unwrap_or_default();
        assert!(
            kept == bytes,
            "{} is made otherwise now: UPDATE_CORPUS=1 writes it anew",
            path.display()
        );
    }
}

#[test]
fn every_record_of_the_corpus_is_one_and_none_that_is_cut_off() {
    for (name, bytes) in records() {
        assert!(super::decoded(&bytes).is_some(), "{name}");
        // This one says all that it has to by what it is.
        if name == "not-created" {
            continue;
        }
        for end in 0..bytes.len() {
            assert!(
                super::decoded(&bytes[..end]).is_none(),
                "{name} cut off at {end}"
            );
        }
    }
}
