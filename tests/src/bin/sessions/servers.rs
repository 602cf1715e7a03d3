//! Answers for the hosts that recorded sessions call, on this machine's loopback.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
};

use anyhow::{Context as _, Result};

/// The port of the challenge in a browser.
const WEB: u16 = 8000;
/// The port of the challenge that is a line of text at a time.
const LINES: u16 = 4242;

/// Starts them; they end with this process.
pub(crate) fn start() -> Result<()> {
    serve(WEB, web)?;
    serve(LINES, number)
}

fn serve(port: u16, answer: fn(TcpStream) -> Result<()>) -> Result<()> {
    let listener =
        TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("port {port}"))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Whoever hangs up has had enough.
            thread::spawn(move || answer(stream));
        }
    });
    Ok(())
}

/// A page, whatever was asked for.
fn web(mut stream: TcpStream) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        if line.is_empty() {
            break;
        }
    }
    reader.take(length).read_to_end(&mut Vec::new())?;
    const PAGE: &str = "<p>a stand-in</p>\n";
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{PAGE}",
        PAGE.len()
    )?;
    Ok(())
}

/// A number for each line.
fn number(mut stream: TcpStream) -> Result<()> {
    writeln!(stream, "Press ENTER to continue")?;
    for line in BufReader::new(stream.try_clone()?).lines() {
        line?;
        writeln!(stream, "1364650861")?;
    }
    Ok(())
}
