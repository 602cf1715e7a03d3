//! A process outside the sandbox, of the same user, that those inside would like to use.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufRead as _, BufReader, IoSlice, Read as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::{fd::AsRawFd as _, unix::net::UnixListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde::{Deserialize, Serialize};

use super::namespaces::Process;

/// What it keeps in memory.
const SECRET: &str = "kept in memory";

/// What it says about itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Outside {
    pub(super) process: Process,
    /// The number by which it has the secret open.
    pub(super) descriptor: i32,
    /// Where it keeps a text.
    pub(super) address: usize,
    /// Where it listens.
    pub(super) socket: PathBuf,
}

/// It, as whoever started it holds it.
pub(super) struct Helper {
    pub(super) outside: Outside,
    child: Child,
}

/// The word by which the hidden command becomes it.
pub(super) const OUTSIDE: &str = "outside";

impl Helper {
    /// Starts one that has `file` open, listens at `socket` and has a peer to connect to.
    pub(super) fn start(
        program: &Path,
        file: &Path,
        socket: &Path,
        peer: (Ipv4Addr, u16),
    ) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args([super::ATTEMPT, OUTSIDE])
            .args([file, socket])
            .arg(SocketAddr::from(peer).to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match serde_json::from_str(&line) {
            Ok(outside) => Ok(Self { outside, child }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(io::Error::other(format!(
                    "the process outside did not begin: {error}"
                )))
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lives until its standard input ends, as it does when whoever started it goes. It keeps a file open and a text in
/// memory, opens the file again and again, and sends descriptors over its socket: that of the file by the
/// word `file`, that of a connection by the word `peer`.
pub(super) fn live(arguments: &[OsString]) -> io::Result<()> {
    let [file, socket, peer] = arguments else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let peer = peer.to_str().and_then(|peer| peer.parse().ok());
    let peer: SocketAddr = peer.ok_or(io::ErrorKind::InvalidInput)?;
    let kept = File::options().read(true).write(true).open(file)?;
    let memory = SECRET.to_owned().into_boxed_str();
    let listener = UnixListener::bind(socket)?;
    let about = Outside {
        process: Process::own(),
        descriptor: kept.as_raw_fd(),
        address: memory.as_ptr().addr(),
        socket: PathBuf::from(socket),
    };
    println!("{}", serde_json::to_string(&about)?);
    let path = PathBuf::from(file);
    std::thread::spawn(move || {
        loop {
            drop(File::open(&path));
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    for connection in listener.incoming() {
        // Whoever comes without knowing what to say goes without anything.
        let _ = connection.and_then(|connection| give(connection, &kept, peer));
    }
    drop(memory);
    Ok(())
}

fn give(
    mut connection: std::os::unix::net::UnixStream,
    kept: &File,
    peer: SocketAddr,
) -> io::Result<()> {
    let mut word = [0; 4];
    connection.read_exact(&mut word)?;
    let stream;
    let descriptor = match &word {
        b"peer" => {
            stream = TcpStream::connect(peer)?;
            stream.as_raw_fd()
        }
        _ => kept.as_raw_fd(),
    };
    let (rights, content) = ([descriptor], [IoSlice::new(b"x")]);
    let rights = [ControlMessage::ScmRights(&rights)];
    let flags = MsgFlags::empty();
    sendmsg::<()>(connection.as_raw_fd(), &content, &rights, flags, None)?;
    Ok(())
}
