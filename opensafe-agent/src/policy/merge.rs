//! Several files of one package as one module.
//!
//! regorus 0.14 takes a package for evaluated once its first file is, if something refers to the whole
//! of it, as `import data.team` does: what a later file has is then undefined, silently. So the files
//! of a package are given to it as one, and what it says about lines is carried back.

use std::collections::BTreeMap;

use regorus::Engine;
use regorus::unstable::{Module, Ref, Span};

use super::ast::{self, path};
use super::error::Located;

/// Where the lines of merged modules come from.
#[derive(Clone, Debug, Default)]
pub(super) struct Merged {
    /// By the merged module's name, its files and the lines of it after which each starts.
    modules: BTreeMap<String, Vec<(u32, String)>>,
}

impl Merged {
    /// The engine to evaluate with, given the one into which each file was parsed, and `empty` with the
    /// same data.
    pub(super) fn new(
        mut parsed: Engine,
        mut empty: Engine,
    ) -> Result<(Engine, Self), Vec<Located>> {
        let mut packages: BTreeMap<Vec<String>, Vec<Ref<Module>>> = BTreeMap::new();
        for module in parsed.get_modules() {
            let refr = &module.package.refr;
            let package = path(refr).unwrap_or_else(|| vec![refr.span().text().to_owned()]);
            packages.entry(package).or_default().push(module.clone());
        }
        if packages.values().all(|modules| modules.len() == 1) {
            return Ok((parsed, Self::default()));
        }
        let mut merged = Self::default();
        let mut errors = Vec::new();
        for modules in packages.values() {
            errors.extend(import_conflicts(modules));
            let (name, text) = if let [module] = &modules[..] {
                let source = &module.package.span.source;
                (source.file().clone(), source.contents().clone())
            } else {
                merged.text(modules[0].package.refr.span().text(), modules)
            };
            if let Err(error) = empty.add_policy(name, text) {
                errors.push(merged.locate(Located::from_regorus(&error)));
            }
        }
        if errors.is_empty() {
            Ok((empty, merged))
        } else {
            Err(errors)
        }
    }

    /// The error with its place, and places in its message, in the files that were merged.
    pub(super) fn locate(&self, mut located: Located) -> Located {
        if let Some(at) = &mut located.at
            && let Some((file, line)) = self.origin(&at.file, at.line)
        {
            at.file = file;
            at.line = line;
        }
        for name in self.modules.keys() {
            let mark = format!("{name}:");
            let message = std::mem::take(&mut located.message);
            let mut rest = message.as_str();
            // What is put in is not looked through again: a file's name may be any, such as the mark.
            while let Some((before, after)) = rest.split_once(&mark) {
                let digits =
                    after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                let (line, after) = after.split_at(digits);
                let place = line.parse().ok().and_then(|line| self.origin(name, line));
                let place = match place {
                    Some((file, line)) => format!("{file}:{line}"),
                    None => format!("{mark}{line}"),
                };
                located.message.extend([before, &place]);
                rest = after;
            }
            located.message.push_str(rest);
        }
        located
    }

    fn origin(&self, module: &str, line: u32) -> Option<(String, u32)> {
        let files = self.modules.get(module)?;
        let (start, file) = files.iter().rfind(|(start, _)| *start < line)?;
        Some((file.clone(), line - start))
    }

    /// One module's name and text: package, imports, then file after file without them.
    fn text(&mut self, package: &str, modules: &[Ref<Module>]) -> (String, String) {
        let name = format!("<package {package}>");
        let mut head = vec![format!("package {package}")];
        for module in modules {
            for import in &module.imports {
                let import = import
                    .span
                    .text()
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ");
                if !head.contains(&import) {
                    head.push(import);
                }
            }
        }
        let mut lines = head.len();
        let mut text = head.join("\n");
        let mut files = Vec::new();
        for module in modules {
            let source = &module.package.span.source;
            files.push((
                u32::try_from(lines).unwrap_or(u32::MAX),
                source.file().clone(),
            ));
            let imports = module.imports.iter().map(|import| &import.span);
            let body = blanked(source.contents(), imports.chain([&module.package.span]));
            text.push('\n');
            text.push_str(&body);
            lines += body.split('\n').count();
        }
        self.modules.insert(name.clone(), files);
        (name, text)
    }
}

/// `text` with spaces where the spans are; line breaks stay.
fn blanked<'a>(text: &str, spans: impl Iterator<Item = &'a Span>) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for span in spans {
        let range = usize::try_from(span.start)
            .ok()
            .zip(usize::try_from(span.end).ok());
        if let Some(blank) = range.and_then(|(start, end)| bytes.get_mut(start..end)) {
            for byte in blank.iter_mut().filter(|byte| **byte != b'\n') {
                *byte = b' ';
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// Names that one file imports, and that mean something else in another file of the package: Rego has
/// them by file, regorus by package.
fn import_conflicts(modules: &[Ref<Module>]) -> Vec<Located> {
    let mut imported: BTreeMap<String, (Vec<String>, String)> = BTreeMap::new();
    let mut errors = Vec::new();
    for module in modules {
        let file = module.package.span.source.file();
        for import in &module.imports {
            let Some(target) = path(&import.refr) else {
                continue;
            };
            let name = match &import.r#as {
                Some(name) => name.text().to_owned(),
                None => target.last().cloned().unwrap_or_default(),
            };
            if matches!(target[0].as_str(), "rego" | "future") {
                continue;
            }
            match imported.get(&name) {
                Some((other, first)) if *other != target => errors.push(Located::at(
                    &import.span,
                    format!("imports another {name} than {first} of the same package; name one of them with `as`"),
                )),
                Some(_) => {}
                None => {
                    imported.insert(name, (target, file.clone()));
                }
            }
        }
    }
    for module in modules {
        for (name, span) in module.policy.iter().filter_map(|rule| ast::head(rule)) {
            if let Some((_, file)) = imported.get(&name) {
                errors.push(Located::at(
                    span,
                    format!("defines {name}, which {file} of the same package imports; import it with `as`"),
                ));
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_called_as_a_package_is_named_once() {
        let name = "<package opensafe.sandbox>".to_owned();
        let odd = format!("/p/{name}:5.rego");
        let merged = Merged {
            modules: BTreeMap::from([(name.clone(), vec![(2, odd.clone()), (9, "b".into())])]),
        };
        let located = merged.locate(Located {
            at: None,
            message: format!("twice: {name}:5:1, {name}:12, {name}:x, {name}:99999999999"),
        });
        assert_eq!(
            located.message,
            format!("twice: {odd}:3:1, b:3, {name}:x, {name}:99999999999")
        );
    }
}
