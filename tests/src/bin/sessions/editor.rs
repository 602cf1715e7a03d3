//! SWE-agent's editor: commands such as `open`, `goto`, `edit` and `insert`, and the file they are about.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// So many lines are shown around the current one.
const WINDOW: usize = 100;
const HEREDOC_END: &str = "end_of_edit";

/// The open file, and where in it the next command works.
#[derive(Debug, Default)]
pub(crate) struct Editor {
    open: Option<PathBuf>,
    line: usize,
    cursors: Option<(usize, usize)>,
}

impl Editor {
    /// Does a command; returns what it shows, or nothing if it is none of the editor's.
    pub(crate) fn command(&mut self, raw: &str, directory: &Path) -> Result<Option<String>> {
        let all = words(raw)?;
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let Some((name, arguments)) = all.split_first() else {
            bail!("no command");
        };
        let shown = match (*name, arguments) {
            ("open", [file]) => self.open_at(directory.join(file), 1)?,
            ("open", [file, line]) => self.open_at(directory.join(file), number(line)?)?,
            ("goto", [line]) => {
                self.line = number(line)?;
                self.window()?
            }
            ("scroll_up", _) => {
                self.line = self.line.saturating_sub(WINDOW).max(1);
                self.window()?
            }
            ("scroll_down", _) => {
                self.line += WINDOW;
                self.window()?
            }
            ("create", [file]) => {
                let file = directory.join(file);
                if file.exists() {
                    bail!("{} already exists", file.display());
                }
                fs::write(&file, "\n").with_context(|| file.display().to_string())?;
                self.open_at(file, 1)?
            }
            ("set_cursors", [from, to]) => {
                self.cursors = Some((number(from)?, number(to)?));
                self.window()?
            }
            ("search_file", [term]) => self.search(self.file()?, term)?,
            ("search_file", [term, file]) => self.search(&directory.join(file), term)?,
            ("edit", _) if body(raw).is_some() => {
                let body = body(raw).unwrap_or_default();
                let range = match arguments {
                    [] => self.cursors.unwrap_or((1, 1)),
                    [range] => range_of(range)?,
                    _ => bail!("edit takes one range"),
                };
                self.edit(range, &body)?
            }
            ("edit", [old, new] | [old, new, _]) => self.replace(old, new)?,
            ("insert", [text]) => self.insert(text, None)?,
            ("insert", [text, line]) => self.insert(text, Some(number(line)?))?,
            _ => return Ok(None),
        };
        Ok(Some(shown))
    }

    fn open_at(&mut self, file: PathBuf, line: usize) -> Result<String> {
        read(&file)?;
        self.open = Some(file);
        self.line = line;
        self.cursors = None;
        self.window()
    }

    fn file(&self) -> Result<&Path> {
        self.open.as_deref().context("no file is open")
    }

    fn window(&self) -> Result<String> {
        let file = self.file()?;
        let text = read(file)?;
        let first = self.line.saturating_sub(WINDOW / 2).max(1);
        let lines = text.lines().zip(1..).skip(first - 1).take(WINDOW);
        let shown: Vec<String> = lines
            .map(|(line, number)| format!("{number}:{line}"))
            .collect();
        Ok(format!("[{}]\n{}", file.display(), shown.join("\n")))
    }

    fn search(&self, file: &Path, term: &str) -> Result<String> {
        let text = read(file)?;
        let found = text
            .lines()
            .zip(1..)
            .filter(|(line, _)| line.contains(term));
        let found: Vec<String> = found
            .map(|(line, number)| format!("{number}:{line}"))
            .collect();
        Ok(found.join("\n"))
    }

    fn edit(&mut self, (from, to): (usize, usize), body: &[&str]) -> Result<String> {
        let file = self.file()?.to_owned();
        let old = read(&file)?;
        let mut lines: Vec<&str> = old.lines().collect();
        if from == 0 || to < from || from > lines.len().max(1) {
            bail!("no lines {from}:{to} in {}", file.display());
        }
        let (from, to) = ((from - 1).min(lines.len()), to.min(lines.len()));
        lines.splice(from..to, body.iter().copied());
        self.change(&file, &old, &format!("{}\n", lines.join("\n")))
    }

    fn replace(&mut self, old: &str, new: &str) -> Result<String> {
        let file = self.file()?.to_owned();
        let text = read(&file)?;
        if !text.contains(old) {
            bail!("{} does not contain the text", file.display());
        }
        self.change(&file, &text, &text.replacen(old, new, 1))
    }

    fn insert(&mut self, added: &str, after: Option<usize>) -> Result<String> {
        let file = self.file()?.to_owned();
        let old = read(&file)?;
        let mut lines: Vec<&str> = old.lines().collect();
        let at = after.unwrap_or(lines.len()).min(lines.len());
        lines.insert(at, added);
        self.change(&file, &old, &format!("{}\n", lines.join("\n")))
    }

    /// Writes the file; if it is Python and would no longer parse, takes that back, as SWE-agent does.
    fn change(&self, file: &Path, old: &str, new: &str) -> Result<String> {
        const PARSE: &str = "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')";
        let name = || file.display().to_string();
        fs::write(file, new).with_context(name)?;
        if file.extension().is_some_and(|kind| kind == "py") {
            let parses = |text: &str| -> Result<bool> {
                fs::write(file, text).with_context(name)?;
                let checked = Command::new("python3")
                    .args(["-c", PARSE])
                    .arg(file)
                    .stderr(Stdio::null())
                    .status();
                Ok(checked.context("python3")?.success())
            };
            if !parses(new)? && parses(old)? {
                bail!("the edit brings a syntax error in and is not made");
            }
            fs::write(file, new).with_context(name)?;
        }
        self.window()
    }
}

fn read(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn number(word: &str) -> Result<usize> {
    word.parse()
        .with_context(|| format!("{word}: not a line number"))
}

fn range_of(word: &str) -> Result<(usize, usize)> {
    let (from, to) = word
        .split_once(':')
        .with_context(|| format!("{word}: not a range"))?;
    Ok((number(from)?, number(to)?))
}

/// The lines between the command and `end_of_edit`, if it is written like that.
fn body(raw: &str) -> Option<Vec<&str>> {
    let mut lines: Vec<&str> = raw.lines().skip(1).collect();
    (lines.pop()? == HEREDOC_END).then_some(lines)
}

/// The words of a command as a shell would see them: quotes hold words together, also over lines.
pub(crate) fn words(raw: &str) -> Result<Vec<String>> {
    let line = match body(raw) {
        Some(_) => raw.lines().next().unwrap_or_default(),
        None => raw,
    };
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (Some('"') | None, '\\') => {
                let next = characters.next().unwrap_or('\\');
                word.get_or_insert_default().push(next);
            }
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        bail!("a quote is not closed");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_shells() {
        let all = words("edit 'return int(x)' '# a\n  \"b\"' False").unwrap();
        assert_eq!(all, ["edit", "return int(x)", "# a\n  \"b\"", "False"]);
        assert_eq!(
            words("edit 1:2\nisn't\nend_of_edit").unwrap(),
            ["edit", "1:2"]
        );
        assert!(words("open 'x").is_err());
    }

    #[test]
    fn lines_are_replaced_by_range_and_by_text() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut editor = Editor::default();
        let mut does = |raw: &str| editor.command(raw, folder.path());
        does("create notes.txt").unwrap();
        does("edit 1:1\none\ntwo\nend_of_edit").unwrap();
        does("edit two 'three\nfour'").unwrap();
        does("insert five").unwrap();
        assert!(does("edit 9:9\nx\nend_of_edit").is_err());
        assert!(does("think hard").unwrap().is_none());
        let text = fs::read_to_string(folder.path().join("notes.txt")).unwrap();
        assert_eq!(text, "one\nthree\nfour\nfive\n");
    }
}
