//! Ordinary work, which has to pass.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
    },
    process::{Command, Stdio},
};

use super::{
    ATTEMPT,
    attempt::{Make, command},
};

/// A piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    /// What is done, for a person.
    pub(super) shows: &'static str,
    pub(super) make: Make,
}

const fn work(name: &'static str, shows: &'static str, make: Make) -> Work {
    Work { name, shows, make }
}

/// All of it.
pub(super) const ALL: &[Work] = &[
    work(
        "work.files",
        "files in the workspace: made, changed, renamed, removed",
        |site| {
            let (one, other) = (site.open("work-1"), site.open("work-2"));
            fs::write(&one, "one")?;
            fs::set_permissions(&one, fs::Permissions::from_mode(0o600))?;
            fs::rename(&one, &other)?;
            if fs::read(&other)? != b"one" {
                return Err(io::Error::other("it was not there"));
            }
            fs::remove_file(&other)
        },
    ),
    work(
        "work.save",
        "a file saved by writing another and renaming it",
        |site| {
            fs::write(site.open("file.new"), "new")?;
            fs::rename(site.open("file.new"), site.open("file"))
        },
    ),
    work(
        "work.directories",
        "directories made, listed and removed",
        |site| {
            let top = site.open("work-directory");
            fs::create_dir_all(top.join("a/b"))?;
            fs::read_dir(&top)?.try_for_each(|entry| entry.map(drop))?;
            fs::remove_dir_all(top)
        },
    ),
    work(
        "work.links",
        "a hard and a symbolic link in the workspace",
        |site| {
            fs::hard_link(site.open("other"), site.open("work-hard"))?;
            std::os::unix::fs::symlink("other", site.open("work-soft"))?;
            fs::read(site.open("work-soft")).map(drop)
        },
    ),
    work("work.pipe", "a pipe", |_| {
        let (mut reader, mut writer) = io::pipe()?;
        writer.write_all(b"x")?;
        reader.read_exact(&mut [0])
    }),
    work(
        "work.program",
        "a program, its output and its exit status",
        |site| {
            let child = Command::new(site.program())
                .arg(ATTEMPT)
                .stdin(Stdio::piped())
                .output()?;
            match child.status.success() {
                true => Ok(()),
                false => Err(io::Error::other(child.status.to_string())),
            }
        },
    ),
    work("work.signal", "a signal to a child", |site| {
        let mut child = Command::new(site.program())
            .args([ATTEMPT, "outside"])
            .args([site.open("file"), site.open("work-socket")])
            .arg("127.0.0.1:1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        child.kill()?;
        child.wait().map(drop)
    }),
    work("work.threads", "threads", |_| {
        let threads: Vec<_> = (0..4).map(|n| std::thread::spawn(move || n)).collect();
        let ended = threads.into_iter().all(|thread| thread.join().is_ok());
        if ended {
            Ok(())
        } else {
            Err(io::Error::other("a thread panicked"))
        }
    }),
    work(
        "work.loopback",
        "a server and a client on loopback",
        |site| {
            let server = TcpListener::bind((Ipv4Addr::LOCALHOST, site.own_port))?;
            let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, site.own_port))?;
            let (mut accepted, _) = server.accept()?;
            client.write_all(b"x")?;
            accepted.read_exact(&mut [0])
        },
    ),
    work(
        "work.unix-socket",
        "a server and a client on a Unix socket",
        |site| {
            let server = UnixListener::bind(site.open("work-unix"))?;
            let mut client = UnixStream::connect(site.open("work-unix"))?;
            let (mut accepted, _) = server.accept()?;
            client.write_all(b"x")?;
            accepted.read_exact(&mut [0])
        },
    ),
    work("work.shell", "sh: a pipeline into a file", |site| {
        let script = format!("printf x | cat > '{}'", site.open("work-shell").display());
        command("sh", &["-c", &script])
    }),
    work(
        "work.python",
        "python3: reading and writing a file",
        |site| {
            let script = format!(
                "p={:?}; open(p,'w').write('x'); open(p).read()",
                site.open("work-python")
            );
            command("python3", &["-c", &script])
        },
    ),
    work("work.git", "git: a file added and committed", |site| {
        let repository = site.open("repository");
        fs::write(repository.join("file"), "content")?;
        let git = |words: &[&str]| {
            let mut all = vec!["-C".to_owned(), repository.display().to_string()];
            all.extend(
                [
                    "-c",
                    "user.name=x",
                    "-c",
                    "user.email=x@localhost",
                    "-c",
                    "gc.auto=0",
                ]
                .map(str::to_owned),
            );
            all.extend(words.iter().map(|&word| word.to_owned()));
            command("git", &all)
        };
        git(&["add", "file"])?;
        git(&["commit", "--quiet", "--no-gpg-sign", "-m", "message"])
    }),
];
