//! A table of columns that are as wide as they must be, and on a terminal no wider than they may be.

use std::io::{self, Write};

use anstyle::Style;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Rows that are looked at for the columns' widths; those that follow are printed as they come, so
/// that a table of any length takes constant memory.
const LOOK_AT: usize = 1000;

/// What becomes of a column that is too wide for the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// It stays as it is.
    Never,
    /// It is made narrower.
    Early,
    /// It is made narrower when those that go early are half as wide.
    Late,
    /// It is made narrower, and goes on below: nothing of it is left out.
    Wrap,
}

impl Cut {
    /// Characters that it keeps.
    const fn at_least(self) -> usize {
        match self {
            Self::Never => usize::MAX,
            Self::Early => 11,
            Self::Late => 22,
            Self::Wrap => 13,
        }
    }
}

/// A cell.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
    path: bool,
}

impl Cell {
    /// With text, or `-` if it is empty, so that every row has as many words as columns.
    pub(super) fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            text: if text.is_empty() { "-".into() } else { text },
            style: Style::new(),
            path: false,
        }
    }

    /// With nothing in it: it goes on with what the row above says.
    pub(super) const fn blank() -> Self {
        Self {
            text: String::new(),
            style: Style::new(),
            path: false,
        }
    }

    /// As a path: where it does not fit, its middle is left out, since its end says most.
    pub(super) const fn path(mut self) -> Self {
        self.path = true;
        self
    }

    pub(super) fn styled(mut self, style: Style) -> Self {
        self.style = style;
        self
    }
}

/// Prints rows of `N` cells.
pub(super) struct Table<const N: usize, W> {
    out: W,
    titles: [&'static str; N],
    cuts: [Cut; N],
    width: Option<usize>,
    rows: Vec<[Cell; N]>,
    widths: Option<[usize; N]>,
}

impl<const N: usize, W: Write> Table<N, W> {
    /// A table that takes at most `width` columns, or as many as it wants.
    pub(super) fn new(columns: [(&'static str, Cut); N], width: Option<usize>, out: W) -> Self {
        Self {
            out,
            titles: columns.map(|(title, _)| title),
            cuts: columns.map(|(_, cut)| cut),
            width,
            rows: Vec::new(),
            widths: None,
        }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: [Cell; N]) -> io::Result<()> {
        if let Some(widths) = self.widths {
            return self.print(&cells, widths);
        }
        self.rows.push(cells);
        if self.rows.len() == LOOK_AT {
            self.begin()?;
        }
        Ok(())
    }

    /// Prints what is left. A table without rows is not printed at all.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if !self.rows.is_empty() {
            self.begin()?;
        }
        self.out.flush()
    }

    fn begin(&mut self) -> io::Result<()> {
        let mut widths = self.titles.map(unicode_width::UnicodeWidthStr::width);
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        if let Some(width) = self.width {
            squeeze(&mut widths, &self.cuts, width);
        }
        self.widths = Some(widths);
        let titles = self
            .titles
            .map(|title| Cell::new(title).styled(Style::new().dimmed()));
        self.print(&titles, widths)?;
        for row in std::mem::take(&mut self.rows) {
            self.print(&row, widths)?;
        }
        Ok(())
    }

    fn print(&mut self, cells: &[Cell; N], widths: [usize; N]) -> io::Result<()> {
        let mut lines = [const { Vec::new() }; N];
        for (at, cell) in cells.iter().enumerate() {
            lines[at] = match (self.width, self.cuts[at]) {
                (None, _) => vec![cell.text.clone()],
                (_, Cut::Wrap) => wrap(&cell.text, widths[at]),
                _ => vec![cut(&cell.text, widths[at], cell.path)],
            };
        }
        for number in 0..lines.iter().map(Vec::len).max().unwrap_or(0) {
            // Blanks come before what they separate, so that none end a line.
            let mut blanks = 0;
            for ((cell, lines), width) in cells.iter().zip(&lines).zip(widths) {
                let text = lines.get(number).map_or("", String::as_str);
                if text.is_empty() {
                    blanks += 2 + width;
                    continue;
                }
                let style = cell.style;
                write!(self.out, "{:blanks$}{style}{text}{style:#}", "")?;
                blanks = 2 + width.saturating_sub(text.width());
            }
            writeln!(self.out)?;
        }
        Ok(())
    }
}

/// Columns that rows would take if nothing were cut.
pub(super) fn natural<const N: usize>(titles: &[(&str, Cut); N], rows: &[[Cell; N]]) -> usize {
    let widths = titles.iter().enumerate().map(|(at, (title, _))| {
        let cells = rows.iter().map(|row| row[at].text.width());
        cells.max().unwrap_or(0).max(title.width())
    });
    widths.sum::<usize>() + 2 * N.saturating_sub(1)
}

/// Takes from the widest columns that may be cut until all fit, or none has more to give.
fn squeeze<const N: usize>(widths: &mut [usize; N], cuts: &[Cut; N], width: usize) {
    loop {
        let total: usize = widths.iter().sum::<usize>() + 2 * N.saturating_sub(1);
        let widest = widths
            .iter_mut()
            .zip(cuts)
            .filter(|(width, cut)| **width > cut.at_least())
            .max_by_key(|(width, cut)| match cut {
                Cut::Late => **width / 2,
                _ => **width,
            });
        match widest {
            Some((widest, _)) if total > width => *widest -= 1,
            _ => return,
        }
    }
}

/// `text` in at most `width` columns, with `…` for what is left out.
fn cut(text: &str, width: usize, path: bool) -> String {
    if text.width() <= width || width == 0 {
        return text.to_owned();
    }
    let room = width - 1;
    let (head, tail) = if path {
        (room / 3, room - room / 3)
    } else {
        (room, 0)
    };
    let fitting = |characters: &mut dyn Iterator<Item = char>, room: usize| {
        let mut used = 0;
        characters
            .take_while(|character| {
                used += character.width().unwrap_or(0);
                used <= room
            })
            .collect::<Vec<_>>()
    };
    let mut shown: String = fitting(&mut text.chars(), head).into_iter().collect();
    shown.push('…');
    shown.extend(fitting(&mut text.chars().rev(), tail).into_iter().rev());
    shown
}

/// `text` in lines of at most `width` columns: broken at blanks, or else behind a slash or a comma, or
/// else anywhere.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while rest.width() > width.max(2) {
        let mut used = 0;
        let fits = rest
            .char_indices()
            .find(|(_, character)| {
                used += character.width().unwrap_or(0);
                used > width.max(2)
            })
            .map_or(rest.len(), |(at, _)| at);
        let blank = rest[..fits].rfind(' ').filter(|at| *at > 0);
        // A line may be full right before a blank.
        let blank = if rest[fits..].starts_with(' ') {
            Some(fits)
        } else {
            blank
        };
        let behind = rest[..fits].rfind(['/', ',']).map(|at| at + 1);
        // The first slash of a path is no place to break it.
        let end = blank.or(behind.filter(|at| *at > 1)).unwrap_or(fits);
        lines.push(rest[..end].trim_end().to_owned());
        rest = rest[end..].trim_start();
    }
    if !rest.is_empty() || lines.is_empty() {
        lines.push(rest.to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [(&str, Cut); 3] =
        [("ID", Cut::Never), ("PATH", Cut::Late), ("WHY", Cut::Early)];

    fn table(width: Option<usize>, rows: &[[&str; 3]]) -> String {
        let mut out = Vec::new();
        let mut table = Table::new(COLUMNS, width, &mut out);
        for row in rows {
            let [id, path, why] = row.map(Cell::new);
            table.row([id, path.path(), why]).unwrap();
        }
        table.finish().unwrap();
        anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_the_last_has_no_blanks_behind() {
        let text = table(None, &[["1", "/a", ""], ["20", "/long/path", "because"]]);
        assert_eq!(
            text,
            "ID  PATH        WHY\n1   /a          -\n20  /long/path  because\n"
        );
    }

    #[test]
    fn on_a_terminal_no_line_is_wider_than_it() {
        let path = "/home/me/work/some/where/deep/below/Москва/東京/file.py";
        let why = "a reason that goes on and on and on and on and on and on";
        for width in 45..140 {
            for line in table(Some(width), &[["1", path, why]]).lines() {
                assert!(line.width() <= width, "{width}: {line}");
            }
        }
        let text = table(Some(60), &[["1", path, why]]);
        assert!(text.contains("/file.py "), "{text}");
    }

    #[test]
    fn what_is_wrapped_is_there_in_full() {
        let path = "/home/me/work/some/where/deep/below/Москва/東京/file.py";
        let why = "git.hooks: a reason that goes on and on and on and on";
        for width in 33..160 {
            let mut out = Vec::new();
            let columns = [("ID", Cut::Never), ("PATH", Cut::Wrap), ("WHY", Cut::Wrap)];
            let mut table = Table::new(columns, Some(width), &mut out);
            table.row(["1", path, why].map(Cell::new)).unwrap();
            table.finish().unwrap();
            let text = String::from_utf8(out).unwrap();
            let text = anstream::adapter::strip_str(&text).to_string();
            assert!(text.lines().all(|line| line.width() <= width), "{text}");
            // Whatever the order in which the columns' lines stand.
            let count = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
            assert_eq!(count(&text), count(&format!("ID PATH WHY 1 {path}{why}")));
        }
        assert_eq!(
            wrap("git.hooks: Git hooks run", 13),
            ["git.hooks:", "Git hooks run"]
        );
        assert_eq!(wrap("~/work/.git/hooks", 13), ["~/work/.git/", "hooks"]);
        assert_eq!(wrap("/extraordinarily", 8), ["/extraor", "dinarily"]);
    }

    #[test]
    fn nothing_is_cut_in_a_pipe() {
        let long = "x".repeat(5000);
        assert!(table(None, &[["1", &long, "y"]]).contains(&long));
    }

    #[test]
    fn a_table_of_any_length_keeps_its_rows_in_order() {
        let rows: Vec<String> = (0..3 * LOOK_AT).map(|n| n.to_string()).collect();
        let mut out = Vec::new();
        let mut table = Table::new(COLUMNS, None, &mut out);
        for row in &rows {
            table.row([row, "p", "w"].map(Cell::new)).unwrap();
        }
        table.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        let printed: Vec<&str> = text
            .lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(printed, rows);
    }
}
