//! Makes a tool call as the agent's own tool would: shells as child processes, files by this process itself.

use std::{
    env, fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{editor::Editor, patch, session::Call};

/// No call may take longer.
const LIMIT: Duration = Duration::from_secs(300);
/// What a background process still prints is not waited for longer than this.
const GRACE: Duration = Duration::from_millis(500);

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With this status, having printed that.
    Ended { status: i32, output: String },
    /// Not made: it has nothing to do with the operating system.
    NotOurs,
}

/// The tools, and what they remember between calls.
pub(crate) struct Tools {
    directory: PathBuf,
    editor: Editor,
}

impl Tools {
    pub(crate) fn new(workspace: PathBuf) -> Self {
        Self {
            directory: workspace,
            editor: Editor::default(),
        }
    }

    /// Makes a call. Whatever goes wrong in it is its outcome.
    pub(crate) fn make(&mut self, call: &Call) -> Outcome {
        match self.try_make(call) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Ended {
                status: 1,
                output: format!("{error:#}"),
            },
        }
    }

    fn try_make(&mut self, call: &Call) -> Result<Outcome> {
        let done = |output: String| Ok(Outcome::Ended { status: 0, output });
        let tool = call.tool.to_ascii_lowercase();
        let path = || {
            let path = call.text(&["path", "file_path", "notebook_path"]);
            path.map(|path| self.place(path)).context("no path")
        };
        match &*tool {
            "bash" | "exec_command" | "shell" | "local_shell" | "execute_bash"
            | "run_shell_command" | "container.exec" => self.shell(&command_line(call)?),
            "read" | "view" | "read_file" => done(read(&path()?)?),
            "write" | "write_file" | "create_file" => {
                let text = call.text(&["text", "content", "file_text"]);
                done(write(&path()?, text.unwrap_or_default())?)
            }
            "edit" | "multiedit" if call.text(&["raw"]).is_none() => {
                let path = path()?;
                let edits = call.args.get("edits").and_then(|edits| edits.as_array());
                let Some(edits) = edits else {
                    return done(replace(&path, call)?);
                };
                for edit in edits {
                    let tool = call.tool.clone();
                    let args = edit.clone();
                    replace(&path, &Call { tool, args })?;
                }
                done(format!("{} edits", edits.len()))
            }
            "str_replace_editor" | "str_replace_based_edit_tool"
                if call.text(&["raw"]).is_none() =>
            {
                done(by_command(&path()?, call)?)
            }
            "grep" => {
                let pattern = call.text(&["pattern"]).context("no pattern")?;
                let place = call.text(&["path"]).unwrap_or(".");
                self.program("grep", &["-rnE", "-e", pattern, "--", place])
            }
            "glob" => {
                let pattern = call.text(&["pattern"]).context("no pattern")?;
                let name = pattern.rsplit('/').next().unwrap_or(pattern);
                self.program("find", &[".", "-name", name])
            }
            "ls" | "list_dir" => self.program("ls", &["-la", call.text(&["path"]).unwrap_or(".")]),
            "apply_patch" => {
                let text = call.text(&["patch", "input", "raw"]).context("no patch")?;
                done(patch::apply(text, &self.directory)?)
            }
            _ => match call.text(&["raw"]) {
                Some(raw) => self.swe_agent(raw),
                None => Ok(Outcome::NotOurs),
            },
        }
    }

    /// SWE-agent's own commands: those of its editor, and some that are programs.
    fn swe_agent(&mut self, raw: &str) -> Result<Outcome> {
        let words = crate::editor::words(raw)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match &*words {
            ["submit"] => self.shell("git add -A && git diff --cached"),
            ["submit", ..] => Ok(Outcome::Ended {
                status: 0,
                output: String::new(),
            }),
            ["decompile" | "disassemble", file, rest @ ..] => {
                let function = match rest {
                    ["--function_name", name] => format!("--disassemble={name}"),
                    _ => "--disassemble".into(),
                };
                self.program("objdump", &[&function, file])
            }
            ["search_dir", term] => self.program("grep", &["-rnIF", "-e", term, "."]),
            ["search_dir", term, place] => {
                self.program("grep", &["-rnIF", "-e", term, "--", place])
            }
            ["find_file", name] => self.program("find", &[".", "-name", name]),
            ["find_file", name, place] => self.program("find", &[*place, "-name", name]),
            _ => Ok(match self.editor.command(raw, &self.directory)? {
                Some(output) => Outcome::Ended { status: 0, output },
                None => Outcome::NotOurs,
            }),
        }
    }

    /// A command line in a shell of its own. A plain `cd` holds for the calls after it.
    fn shell(&mut self, line: &str) -> Result<Outcome> {
        if let Some(place) = line.trim().strip_prefix("cd ")
            && !place.contains(['&', ';', '|', '$', '\n'])
        {
            let place = self.place(place.trim());
            self.directory = place
                .canonicalize()
                .with_context(|| place.display().to_string())?;
            return Ok(Outcome::Ended {
                status: 0,
                output: String::new(),
            });
        }
        self.program("bash", &["-c", line])
    }

    fn program(&self, name: &str, arguments: &[&str]) -> Result<Outcome> {
        run(Command::new(name)
            .args(arguments)
            .current_dir(&self.directory))
    }

    fn place(&self, path: &str) -> PathBuf {
        match (path.strip_prefix("~/"), env::home_dir()) {
            (Some(below), Some(home)) => home.join(below),
            _ => self.directory.join(path),
        }
    }
}

/// `command` is a line, or a list of words whose last is the line if the first is a shell.
fn command_line(call: &Call) -> Result<String> {
    if let Some(line) = call.text(&["command", "cmd"]) {
        return Ok(line.to_owned());
    }
    let words = call.args.get("command").or_else(|| call.args.get("cmd"));
    let words: Vec<&str> = words
        .and_then(|words| words.as_array())
        .context("no command")?
        .iter()
        .filter_map(|word| word.as_str())
        .collect();
    Ok(match &*words {
        ["bash" | "sh" | "/bin/bash" | "/bin/sh", "-c" | "-lc", line] => (*line).to_owned(),
        words => {
            let quoted = words
                .iter()
                .map(|word| format!("'{}'", word.replace('\'', r"'\''")));
            quoted.collect::<Vec<_>>().join(" ")
        }
    })
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(path: &Path, text: &str) -> Result<String> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    fs::write(path, text).with_context(|| path.display().to_string())?;
    Ok(format!("wrote {} bytes", text.len()))
}

/// Puts one text in another's place; in place of an empty one, it is the file's.
fn replace(path: &Path, call: &Call) -> Result<String> {
    let old = call.text(&["old", "old_string", "old_str"]);
    let old = old.unwrap_or_default();
    let new = call.text(&["new", "new_string", "new_str"]);
    let new = new.unwrap_or_default();
    if old.is_empty() {
        return write(path, new);
    }
    let text = read(path)?;
    if !text.contains(old) {
        bail!(
            "{}: does not contain the text to be replaced",
            path.display()
        );
    }
    let all = call.args.get("replace_all").is_some_and(|all| all == true);
    let text = text.replacen(old, new, if all { usize::MAX } else { 1 });
    write(path, &text)
}

/// The editor that takes its command as an argument.
fn by_command(path: &Path, call: &Call) -> Result<String> {
    match call.text(&["command"]) {
        Some("view") if path.is_dir() => {
            let entries = fs::read_dir(path).with_context(|| path.display().to_string())?;
            let names = entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned());
            Ok(names.collect::<Vec<_>>().join("\n"))
        }
        Some("view") => read(path),
        Some("create") => write(path, call.text(&["file_text"]).unwrap_or_default()),
        Some("str_replace") => replace(path, call),
        Some("insert") => {
            let at = call.args.get("insert_line").and_then(Value::as_u64);
            let at = usize::try_from(at.unwrap_or(0))?;
            let text = read(path)?;
            let mut lines: Vec<&str> = text.lines().collect();
            let added = call.text(&["new_str", "insert_text"]).unwrap_or_default();
            lines.insert(at.min(lines.len()), added);
            write(path, &format!("{}\n", lines.join("\n")))
        }
        other => bail!("no such command: {}", other.unwrap_or_default()),
    }
}

/// Runs it, with what it prints on both streams, in order.
pub(crate) fn run(command: &mut Command) -> Result<Outcome> {
    let (mut reader, writer) = std::io::pipe()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| command.get_program().display().to_string())?;
    // It holds the pipe's other end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let printed = Arc::new(Mutex::new(Vec::new()));
    let (all, end) = mpsc::channel();
    let kept = Arc::clone(&printed);
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            let read = buffer.get(..length).unwrap_or_default();
            kept.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(read);
        }
        let _ = all.send(());
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break shell_status(status);
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            break 124;
        }
        thread::sleep(Duration::from_millis(5));
    };
    let _ = end.recv_timeout(GRACE);
    let printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
    let output = String::from_utf8_lossy(&printed).into_owned();
    Ok(Outcome::Ended { status, output })
}

/// As a shell gives it.
pub(crate) fn shell_status(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
