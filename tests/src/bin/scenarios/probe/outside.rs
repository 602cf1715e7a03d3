//! A process outside the sandbox, of the same user, that those inside would like to use.

use std::{
    fs::File,
    io::{self, IoSlice, Read as _},
    net::TcpStream,
    os::{fd::AsRawFd as _, unix::net::UnixListener},
    path::Path,
    time::Duration,
};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// What it keeps in memory.
const SECRET: &str = "kept in memory";

/// Says `outside PID DESCRIPTOR ADDRESS`, and lives until it is killed. It keeps a file open and a text in memory, opens
/// the file again and again, and sends descriptors over a socket: of the file by the word `file`, of a connection to
/// this peer by the word `peer`.
pub(super) fn live(file: &Path, socket: &Path, peer: &str) -> io::Result<()> {
    let kept = File::options().read(true).write(true).open(file)?;
    let memory = SECRET.to_owned().into_boxed_str();
    let listener = UnixListener::bind(socket)?;
    println!(
        "outside {} {} {}",
        std::process::id(),
        kept.as_raw_fd(),
        memory.as_ptr().addr()
    );
    let path = file.to_owned();
    std::thread::spawn(move || {
        loop {
            drop(File::open(&path));
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    for connection in listener.incoming() {
        let mut connection = connection?;
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
        let rights = [ControlMessage::ScmRights(&[descriptor])];
        let content = [IoSlice::new(b"x")];
        let flags = MsgFlags::empty();
        sendmsg::<()>(connection.as_raw_fd(), &content, &rights, flags, None)?;
    }
    drop(memory);
    Ok(())
}
