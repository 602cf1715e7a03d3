//! A session: the tool calls of one agent, in order.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// One tool call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The tool's name.
    pub(crate) tool: String,
    /// Its arguments.
    pub(crate) args: Value,
}

impl Call {
    /// An argument that is text, under the first of these names that is there.
    pub(crate) fn text(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.args.get(name)?.as_str())
    }

    /// What it is, in a line.
    pub(crate) fn shown(&self) -> String {
        let path = self.text(&["path", "file_path"]);
        if let Some(command) = self.text(&["command", "cmd"])
            && path.is_none()
        {
            format!("$ {}", one_line(command))
        } else if let Some(raw) = self.text(&["raw"]) {
            one_line(raw)
        } else {
            let object = path.map_or_else(|| self.args.to_string(), str::to_owned);
            format!("{} {}", self.tool, one_line(&object))
        }
    }
}

/// The first line, and whether there is more.
fn one_line(text: &str) -> String {
    match text.trim().split_once('\n') {
        Some((first, _)) => format!("{first} …"),
        None => text.trim().to_owned(),
    }
}

/// Reads a file of calls, one a line.
pub(crate) fn read(file: &Path) -> Result<Vec<Call>> {
    let name = || file.display().to_string();
    let text = fs::read_to_string(file).with_context(name)?;
    text.lines()
        .zip(1..)
        .map(|(line, number)| {
            call(line).with_context(|| format!("{}:{number}: not a tool call", name()))
        })
        .collect()
}

fn call(line: &str) -> Result<Call> {
    let value: Value = serde_json::from_str(line)?;
    let tool = value.get("tool").and_then(Value::as_str);
    Ok(Call {
        tool: tool.context("no `tool`")?.to_owned(),
        args: value.get("args").cloned().unwrap_or_default(),
    })
}
