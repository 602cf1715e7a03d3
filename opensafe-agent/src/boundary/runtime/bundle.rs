//! A container as the Open Container Initiative's runtimes take one: a directory with a `config.json`
//! (<https://github.com/opencontainers/runtime-spec>). It sees all of the host's files, for the throwaway ones are among
//! them, and the host's network; processes, mounts and a host name are its own.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::super::site::Site;

/// What Docker and Podman leave to root in a container.
const CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// Makes it at the site, for this command; the command line by which `program` runs it.
pub(super) fn make(program: &str, site: &Site, command: &[OsString]) -> io::Result<Vec<OsString>> {
    let bundle = site.path("container");
    let root = bundle.join("rootfs");
    fs::create_dir_all(&root)?;
    let mounts = mounts(Path::new("/"), &root)?;
    let config = serde_json::to_vec(&config(command, &mounts)?)?;
    fs::write(bundle.join("config.json"), config)?;
    // These programs run a copy of themselves, so that no container can change them: one on a mount of their own, or
    // from memory if they may not mount. Among mounts of its own each may.
    let mut line: Vec<OsString> = ["unshare", "--mount", program].map(OsString::from).into();
    line.extend(state(site));
    if program == "crun" {
        line.push("--cgroup-manager=disabled".into());
    }
    line.extend(["run", "--no-new-keyring", "--bundle"].map(OsString::from));
    line.extend([bundle.into_os_string(), id(site)]);
    Ok(line)
}

/// The arguments by which it is deleted.
pub(super) fn delete(site: &Site) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = state(site).into();
    arguments.extend(["delete".into(), "--force".into(), id(site)]);
    arguments
}

fn state(site: &Site) -> [OsString; 2] {
    ["--root".into(), site.path("container/state").into()]
}

/// The site's own name: there is no other of that name.
fn id(site: &Site) -> OsString {
    site.root
        .file_name()
        .map_or_else(OsString::new, OsStr::to_owned)
}

/// What is in `of` is what the container sees: directories by mounts, links as they are.
fn mounts(of: &Path, root: &Path) -> io::Result<Vec<Value>> {
    let mut mounts = Vec::new();
    for entry in fs::read_dir(of)? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, root.join(name))?;
        } else if kind.is_dir() && name != "proc" {
            let path = text(entry.path())?;
            mounts.push(json!({
                "destination": path, "source": path, "type": "bind", "options": ["rbind"],
            }));
        }
    }
    mounts.push(json!({ "destination": "/proc", "source": "proc", "type": "proc" }));
    Ok(mounts)
}

fn config(command: &[OsString], mounts: &[Value]) -> io::Result<Value> {
    let arguments: io::Result<Vec<String>> = command.iter().map(text).collect();
    // What else there is in the environment is for nobody's eyes.
    let environment = ["PATH", "HOME"]
        .into_iter()
        .filter_map(|name| Some(format!("{name}={}", env::var(name).ok()?)));
    let environment: Vec<String> = environment.collect();
    let namespaces = ["pid", "ipc", "uts", "mount"].map(|kind| json!({ "type": kind }));
    Ok(json!({
        "ociVersion": "1.0.0",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": arguments?,
            "env": environment,
            "cwd": "/",
            "capabilities": {
                "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
            },
        },
        "root": { "path": "rootfs", "readonly": false },
        "mounts": mounts,
        "linux": { "namespaces": namespaces },
    }))
}

/// JSON has only text.
fn text(of: impl Into<PathBuf>) -> io::Result<String> {
    let of: OsString = of.into().into_os_string();
    of.into_string().map_err(|name| {
        let why = format!(
            "{} is no UTF-8, as a container's configuration has to be",
            name.display()
        );
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(directory: &Path) -> Site {
        Site {
            root: directory.join("opensafe-boundary-x"),
            ..Site::default()
        }
    }

    #[test]
    fn a_container_runs_the_command_among_all_files_of_the_host_with_a_name_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let site = site(directory.path());
        let line = make("crun", &site, &["try".into(), "a b".into()]).unwrap();
        assert_eq!(line[..3], ["unshare", "--mount", "crun"]);
        assert_eq!(line.last().unwrap(), "opensafe-boundary-x");
        let config = fs::read(site.path("container/config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["process"]["args"], json!(["try", "a b"]));
        let mounts = config["mounts"].as_array().unwrap();
        let is_mounted = |path: &str| mounts.iter().any(|mount| mount["destination"] == path);
        assert!(is_mounted("/usr") && is_mounted("/tmp"), "{mounts:?}");
        let proc: Vec<_> = mounts
            .iter()
            .filter(|mount| mount["destination"] == "/proc")
            .collect();
        assert!(proc.len() == 1 && proc[0]["type"] == "proc", "{proc:?}");
    }

    #[test]
    fn links_of_the_host_are_links_in_the_container() {
        let directory = tempfile::tempdir().unwrap();
        let (of, root) = (directory.path().join("of"), directory.path().join("root"));
        for made in [&of, &root, &of.join("usr")] {
            fs::create_dir(made).unwrap();
        }
        symlink("usr/bin", of.join("bin")).unwrap();
        assert_eq!(mounts(&of, &root).unwrap().len(), 2);
        assert_eq!(
            fs::read_link(root.join("bin")).unwrap(),
            Path::new("usr/bin")
        );
    }
}
