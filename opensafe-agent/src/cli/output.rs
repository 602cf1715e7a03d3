//! Standard output: buffered, coloured only where that is wanted, and as wide as it is.

use std::io::{self, BufWriter, IsTerminal as _, StdoutLock};

/// What a command prints to.
pub(super) type Output = BufWriter<anstream::AutoStream<StdoutLock<'static>>>;

/// Standard output.
pub(super) fn stdout() -> Output {
    BufWriter::new(anstream::AutoStream::auto(io::stdout().lock()))
}

/// Columns of the terminal that standard output is; `None` if it is none, where nothing is cut.
pub(super) fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))
}
