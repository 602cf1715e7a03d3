//! Workspaces in which the calls of recorded sessions mean something: the files that they name, and stand-ins for
//! programs that the guest lacks.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::user::User;

/// Where stand-ins for programs are put.
const PROGRAMS: &str = "/usr/local/bin";
/// There only in guests of `cargo xtask vm`.
const GUEST: &str = "/run/guest";
/// Where names are looked up first.
const HOSTS: &str = "/etc/hosts";

/// Changes this machine so that recorded sessions can be played on it.
pub(crate) fn prepare(texts: &[String]) -> Result<()> {
    if !Path::new(GUEST).exists() {
        bail!("this changes the machine that it runs on, and is for guests only: cargo xtask vm");
    }
    symlink("/usr/bin/python3", format!("{PROGRAMS}/python")).context("python")?;
    program("unzip", "exec python3 -m zipfile -e \"$1\" .")?;
    // Reads the capture, and ends as tshark does.
    program(
        "tshark",
        "while [ \"$1\" != -r ]; do shift; done; exec od -A d -t x1z \"$2\"",
    )?;
    // The hosts of the challenges are this machine.
    let mut hosts = fs::read_to_string(HOSTS).context(HOSTS)?;
    for text in texts {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && !"-.".contains(c)) {
            if word.ends_with(".chal.example") && !hosts.contains(word) {
                hosts += &format!("127.0.0.1 {word}\n");
            }
        }
    }
    fs::write(HOSTS, hosts).context(HOSTS)
}

fn program(name: &str, script: &str) -> Result<()> {
    let file = Path::new(PROGRAMS).join(name);
    fs::write(&file, format!("#!/bin/sh\n{script}\n"))?;
    Ok(fs::set_permissions(
        &file,
        PermissionsExt::from_mode(0o755),
    )?)
}

/// A workspace.
#[derive(Debug)]
pub(crate) struct Ground {
    /// Where it is.
    pub(crate) workspace: PathBuf,
    /// Where its programs are, before all others.
    pub(crate) programs: Option<PathBuf>,
}

impl Ground {
    /// Makes a session's workspace anew.
    pub(crate) fn make(session: &str, user: &User) -> Result<Self> {
        let home = |name: &str| user.home.join(name);
        let kind = KINDS.iter().find(|kind| session.starts_with(kind.sessions));
        let kind = kind.unwrap_or(&ANY);
        let workspace = match kind.at {
            "" => home("work"),
            place => place.into(),
        };
        if workspace.exists() {
            fs::remove_dir_all(&workspace)?;
        }
        user.directory(&workspace)?;
        user.write(
            &home(".gitconfig"),
            "[user]\n\tname = Agent\n\temail = agent@example.com\n",
        )?;
        for (name, text) in kind.files {
            user.write(&workspace.join(name), text)?;
        }
        (kind.more)(&workspace, user)?;
        user.script(
            &workspace,
            "git init -q -b main && git add -A && git commit -q -m 'The first one' --allow-empty",
        )?;
        Ok(Self {
            programs: Some(workspace.join(".venv/bin")).filter(|place| place.exists()),
            workspace,
        })
    }

    /// Every file below it with its size, but for what differs from run to run.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let list = Command::new("find")
            .arg(&self.workspace)
            .args([
                "(",
                "-name",
                ".git",
                "-o",
                "-name",
                "__pycache__",
                "-o",
                "-name",
                ".venv",
                ")",
            ])
            .args(["-prune", "-o", "-printf", "%P %y %s\n"])
            .output()
            .context("find")?;
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        // A directory's size says nothing.
        let mut files: Vec<String> = list
            .lines()
            .filter(|line| !line.contains(" d "))
            .map(str::to_owned)
            .collect();
        files.sort();
        Ok(files)
    }
}

/// A kind of workspace.
struct Kind {
    /// The sessions that it is for: those whose names begin like this.
    sessions: &'static str,
    /// Where it is; `work` in the home, if that does not matter.
    at: &'static str,
    files: &'static [(&'static str, &'static str)],
    more: fn(&Path, &User) -> Result<()>,
}

const ANY: Kind = Kind {
    sessions: "",
    at: "",
    files: &[
        ("README.md", "# A project\n"),
        ("main.py", "print('hello')\n"),
    ],
    more: |_, _| Ok(()),
};

/// A function without its colon, as both sessions about it found it.
const MISSING_COLON: &[(&str, &str)] = &[
    ("README.md", "# A test repository\n"),
    ("tests/__init__.py", ""),
    (
        "tests/missing_colon.py",
        "#!/usr/bin/env python3\n\n\ndef division(a: float, b: float) -> float\n    return a/b\n\n\nif __name__ == \"__main__\":\n    print(division(123, 15))\n",
    ),
];

const KINDS: &[Kind] = &[
    Kind {
        sessions: "miniswe-github-issue",
        at: "/home/user/Documents/24/git_sync/swe-agent-test-repo",
        files: MISSING_COLON,
        more: |_, _| Ok(()),
    },
    Kind {
        sessions: "sweagent-test-repo",
        at: "/SWE-agent__test-repo",
        files: MISSING_COLON,
        more: |_, _| Ok(()),
    },
    Kind {
        sessions: "sweagent-ctf-crypto-babyencryption",
        at: "",
        files: &[
            (
                "chall.py",
                "from secret import MESSAGE\n\ncipher = bytes((123 * char + 18) % 256 for char in MESSAGE)\n\nwith open('msg.enc', 'w') as f:\n    f.write(cipher.hex())\n",
            ),
            // "a stand-in"
            ("msg.enc", "ad7253ceadec1eb185ec"),
        ],
        more: |_, _| Ok(()),
    },
    Kind {
        sessions: "sweagent-ctf-crypto-katy",
        at: "",
        files: &[
            (
                "release.c",
                "int next_cypher(int x) { return x * 5 + 1; }\nint _hash(int x) { return next_cypher(x) ^ x; }\nint main(void) { return _hash(0) != 1; }\n",
            ),
            // As much of pwntools as the session uses.
            (
                "pwn.py",
                "import socket\n\n\nclass remote:\n    def __init__(self, host, port):\n        self.file = socket.create_connection((host, port)).makefile('rwb')\n\n    def recvline(self):\n        return self.file.readline()\n\n    def recvuntil(self, text):\n        return self.file.readline()\n\n    def sendline(self, text):\n        self.file.write(text.encode() + b'\\n')\n        self.file.flush()\n",
            ),
        ],
        more: |workspace, user| user.script(workspace, "gcc -o release release.c").map(drop),
    },
    Kind {
        sessions: "sweagent-ctf-forensics-flash",
        at: "",
        files: &[],
        more: |workspace, user| {
            const NAME: &str = "flash_c8429a430278283c0e571baebca3d139";
            user.write(
                &workspace.join(format!("{NAME}.img")),
                b"\0\x01flag{a-stand-in}\0\x02",
            )?;
            user.script(
                workspace,
                &format!("python3 -m zipfile -c {NAME}.zip {NAME}.img; rm {NAME}.img"),
            )
            .map(drop)
        },
    },
    Kind {
        sessions: "sweagent-ctf-misc-networking1",
        at: "",
        files: &[("networking.pcap", "a stand-in for a capture")],
        more: |_, _| Ok(()),
    },
    // It found the package installed.
    Kind {
        sessions: "sweagent-marshmallow-1867-cursors",
        at: "",
        files: MARSHMALLOW,
        more: |workspace, user| {
            marshmallow(workspace, user)?;
            user.script(
                workspace,
                "cd .venv/lib/python3*/site-packages && echo ../../../../src >marshmallow.pth",
            )
            .map(drop)
        },
    },
    Kind {
        sessions: "sweagent-marshmallow",
        at: "",
        files: MARSHMALLOW,
        more: marshmallow,
    },
];

/// A package that can be installed without a network.
const MARSHMALLOW: &[(&str, &str)] = &[
    (
        "setup.py",
        "from setuptools import setup\n\nsetup(name='marshmallow', version='3.0', extras_require={'dev': []})\n",
    ),
    (
        "pyproject.toml",
        "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n",
    ),
    ("backend.py", BACKEND),
    ("README.md", "# A stand-in for marshmallow\n"),
    (".gitignore", ".venv/\n__pycache__/\n"),
    ("src/marshmallow/__init__.py", ""),
];

/// Builds an editable wheel without setuptools, which would have to be fetched.
const BACKEND: &str = r#"import zipfile
from pathlib import Path

NAME = "marshmallow-3.0"
FILES = {
    "marshmallow.pth": f"{Path(__file__).parent / 'src'}\n",
    f"{NAME}.dist-info/METADATA": "Metadata-Version: 2.1\nName: marshmallow\nVersion: 3.0\nProvides-Extra: dev\n",
    f"{NAME}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}


def build_editable(directory, settings=None, metadata=None):
    record = f"{NAME}.dist-info/RECORD"
    wheel = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(Path(directory) / wheel, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
        archive.writestr(record, "".join(f"{name},,\n" for name in [*FILES, record]))
    return wheel


build_wheel = build_editable
"#;

/// The line of marshmallow's `fields.py` that the sessions are about.
const LINE: usize = 1475;

fn marshmallow(workspace: &Path, user: &User) -> Result<()> {
    let head = "\"\"\"Fields.\"\"\"\nimport datetime as dt\n";
    let field = "\n\nclass TimeDelta:\n    def __init__(self, precision):\n        self.precision = precision\n\n    def serialize(self, name, obj):\n        value = obj[name]\n        base_unit = dt.timedelta(**{self.precision: 1})\n        return int(value.total_seconds() / base_unit.total_seconds())\n";
    let rest = LINE - head.lines().count() - field.lines().count();
    let fields = format!("{head}{}{field}", "# the other fields\n".repeat(rest));
    user.write(&workspace.join("src/marshmallow/fields.py"), fields)?;
    // Made once: it takes half a minute.
    let made = user.home.join(".marshmallow-venv");
    if !made.exists() {
        user.script(&user.home, "python3 -m venv .marshmallow-venv")?;
    }
    let made = made.display();
    let venv = workspace.join(".venv");
    let venv = venv.display();
    user.script(
        workspace,
        &format!("cp -a {made} .venv && sed -i 's|{made}|{venv}|' .venv/bin/* .venv/pyvenv.cfg"),
    )
    .map(drop)
}
