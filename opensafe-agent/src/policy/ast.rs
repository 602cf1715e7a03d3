//! What a policy's text tells before it is evaluated: where its rules are written, and what it asks
//! of `input`.
//!
//! In Rego a rule that refers to something undefined is not there. For a denial that would be a hole,
//! so what can be seen of it in the text is looked for here: names that `input` does not have, and
//! rules without a condition that the evaluation must give.

use std::collections::BTreeMap;

use regorus::unstable::{Expr, Literal, Module, Query, Ref, Rule, RuleBody, RuleHead, Span};

use super::error::{At, Located};
use super::input::KNOWN;
use super::test::{self, Test};
use super::{PACKAGE, RESPONSES, check};
use crate::rules::Origin;

/// What was found in a policy's modules.
#[derive(Clone, Debug, Default)]
pub(super) struct Declared {
    /// Id → where an object with `"id": ID` is written.
    ids: BTreeMap<String, Vec<Origin>>,
    /// Any other string → where it is written first.
    strings: BTreeMap<String, Origin>,
    /// Ids of rules without a condition: `rules contains {"id": ID, …}`.
    pub(super) unconditional: BTreeMap<String, Origin>,
    /// Ids of responses without a condition: `responses contains {"id": ID, …}`.
    pub(super) unconditional_responses: BTreeMap<String, Origin>,
    /// References to input that there is not.
    pub(super) unknown_inputs: Vec<Located>,
}

impl Declared {
    pub(super) fn find(modules: &[Ref<Module>]) -> Self {
        let mut declared = Self::default();
        for module in modules {
            let package = path(&module.package.refr).unwrap_or_default();
            let mut visitor = Visitor {
                of: match format!("data.{}", package.join(".")).as_str() {
                    PACKAGE => Some("rules"),
                    RESPONSES => Some("responses"),
                    _ => None,
                },
                declared: &mut declared,
            };
            for import in &module.imports {
                visitor.expr(&import.refr);
            }
            for rule in &module.policy {
                visitor.rule(rule);
            }
        }
        declared
    }

    /// Every id that is written out.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.ids.keys().map(String::as_str)
    }

    /// Where the rule or response `id` seems to be written; several places if it is written several times.
    pub(super) fn origins(&self, id: &str) -> Vec<Origin> {
        match self.ids.get(id) {
            Some(origins) => origins.clone(),
            None => self.strings.get(id).cloned().into_iter().collect(),
        }
    }
}

/// The unit tests in a policy's modules.
pub(super) fn tests(modules: &[Ref<Module>]) -> Vec<Test> {
    let in_module = |module: &Ref<Module>| {
        let package = path(&module.package.refr).unwrap_or_default();
        let tests = module.policy.iter().filter_map(move |rule| {
            let Rule::Spec {
                head: RuleHead::Compr { refr, .. },
                ..
            } = rule.as_ref()
            else {
                return None;
            };
            let name = path(refr)?;
            let first = name.first()?;
            let skipped = first.starts_with("todo_test_");
            (skipped || first.starts_with("test_")).then(|| Test {
                path: format!("data{}", reference(package.iter().chain(&name))),
                origin: origin(refr.span()),
                skipped,
            })
        });
        tests.collect::<Vec<_>>()
    };
    test::unique(modules.iter().flat_map(in_module))
}

/// The first name in what a rule defines, and where.
pub(super) fn head(rule: &Rule) -> Option<(String, &Span)> {
    let refr = match rule {
        Rule::Spec { head, .. } => match head {
            RuleHead::Compr { refr, .. }
            | RuleHead::Set { refr, .. }
            | RuleHead::Func { refr, .. } => refr,
        },
        Rule::Default { refr, .. } => refr,
    };
    let mut first = refr.as_ref();
    while let Expr::RefDot { refr, .. } | Expr::RefBrack { refr, .. } = first {
        first = refr;
    }
    match first {
        Expr::Var { span, .. } => Some((span.text().to_owned(), span)),
        _ => None,
    }
}

struct Visitor<'a> {
    /// What a package of ours defines.
    of: Option<&'static str>,
    declared: &'a mut Declared,
}

impl Visitor<'_> {
    fn rule(&mut self, rule: &Rule) {
        match rule {
            Rule::Spec { head, bodies, .. } => {
                self.head(head, bodies);
                for body in bodies {
                    if let Some(assign) = &body.assign {
                        self.expr(&assign.value);
                    }
                    self.query(&body.query);
                }
            }
            Rule::Default { value, .. } => self.expr(value),
        }
    }

    fn head(&mut self, head: &RuleHead, bodies: &[RuleBody]) {
        match head {
            RuleHead::Set {
                refr,
                key: Some(key),
                ..
            } => {
                if let Some(of) = self.of
                    && bodies.is_empty()
                    && path(refr).is_some_and(|path| path == [of])
                    && let Expr::Object { fields, .. } = key.as_ref()
                    && let Some((id, span)) = id(fields)
                {
                    let unconditional = match of {
                        "rules" => &mut self.declared.unconditional,
                        _ => &mut self.declared.unconditional_responses,
                    };
                    unconditional.insert(id, origin(span));
                }
                self.expr(key);
            }
            RuleHead::Set { .. } => {}
            RuleHead::Compr { assign, .. } => {
                if let Some(assign) = assign {
                    self.expr(&assign.value);
                }
            }
            RuleHead::Func { args, assign, .. } => {
                self.exprs(args);
                if let Some(assign) = assign {
                    self.expr(&assign.value);
                }
            }
        }
    }

    fn query(&mut self, query: &Query) {
        for statement in &query.stmts {
            match &statement.literal {
                Literal::SomeVars { .. } => {}
                Literal::SomeIn {
                    key,
                    value,
                    collection,
                    ..
                } => {
                    if let Some(key) = key {
                        self.expr(key);
                    }
                    self.expr(value);
                    self.expr(collection);
                }
                Literal::Expr { expr, .. } | Literal::NotExpr { expr, .. } => self.expr(expr),
                Literal::Every { domain, query, .. } => {
                    self.expr(domain);
                    self.query(query);
                }
            }
            for modifier in &statement.with_mods {
                self.expr(&modifier.r#as);
            }
        }
    }

    fn exprs(&mut self, exprs: &[Ref<Expr>]) {
        for expr in exprs {
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::String { span, value, .. } | Expr::RawString { span, value, .. } => {
                if let Ok(text) = value.as_string() {
                    let strings = &mut self.declared.strings;
                    strings
                        .entry(text.to_string())
                        .or_insert_with(|| origin(span));
                }
            }
            Expr::Number { .. } | Expr::Bool { .. } | Expr::Null { .. } | Expr::Var { .. } => {}
            Expr::Array { items, .. } | Expr::Set { items, .. } => self.exprs(items),
            Expr::Object { fields, .. } => {
                if let Some((id, span)) = id(fields) {
                    self.declared.ids.entry(id).or_default().push(origin(span));
                }
                for (_, key, value) in fields {
                    self.expr(key);
                    self.expr(value);
                }
            }
            Expr::ArrayCompr { term, query, .. } | Expr::SetCompr { term, query, .. } => {
                self.expr(term);
                self.query(query);
            }
            Expr::ObjectCompr {
                key, value, query, ..
            } => {
                self.expr(key);
                self.expr(value);
                self.query(query);
            }
            Expr::Call { params, .. } => self.exprs(params),
            Expr::UnaryExpr { expr, .. } => self.expr(expr),
            Expr::RefDot { refr, .. } => self.reference(expr, refr, None),
            Expr::RefBrack { refr, index, .. } => self.reference(expr, refr, Some(index)),
            Expr::BinExpr { lhs, rhs, .. }
            | Expr::BoolExpr { lhs, rhs, .. }
            | Expr::ArithExpr { lhs, rhs, .. }
            | Expr::AssignExpr { lhs, rhs, .. } => {
                self.expr(lhs);
                self.expr(rhs);
            }
            Expr::Membership {
                key,
                value,
                collection,
                ..
            } => {
                if let Some(key) = key {
                    self.expr(key);
                }
                self.expr(value);
                self.expr(collection);
            }
        }
    }

    fn reference(&mut self, whole: &Expr, refr: &Expr, index: Option<&Expr>) {
        if let Some(path) = path(whole) {
            self.input(whole.span(), &path);
            return;
        }
        self.expr(refr);
        if let Some(index) = index {
            self.expr(index);
        }
    }

    /// Notes a reference to an input that there is not.
    fn input(&mut self, span: &Span, path: &[String]) {
        let ["input", name, below @ ..] = &path.iter().map(String::as_str).collect::<Vec<_>>()[..]
        else {
            return;
        };
        if self.of.is_none() {
            return;
        }
        let message = match (KNOWN.iter().find(|(known, _)| known == name), below) {
            (None, _) => check::unknown(
                &format!("input.{name}: there is no such input"),
                name,
                KNOWN.iter().map(|(known, _)| *known),
            ),
            (Some((_, known)), [below, ..]) if !known.is_empty() && !known.contains(below) => {
                check::unknown(
                    &format!("input.{name}.{below}: there is no such input"),
                    below,
                    known.iter().copied(),
                )
            }
            _ => return,
        };
        self.declared
            .unknown_inputs
            .push(Located::at(span, message));
    }
}

impl Located {
    pub(super) fn at(span: &Span, message: String) -> Self {
        let text = span.source.line(span.line.saturating_sub(1)).to_owned();
        let before = span_start_column(span);
        Self {
            at: Some(At {
                file: span.source.file().clone(),
                line: span.line,
                column: before,
                text,
            }),
            message,
        }
    }
}

/// The character in its line at which a span starts, from 1.
fn span_start_column(span: &Span) -> u32 {
    let start = usize::try_from(span.start).unwrap_or(usize::MAX);
    let before = span.source.contents().get(..start).unwrap_or_default();
    let characters = before.chars().rev().take_while(|&c| c != '\n').count();
    u32::try_from(characters)
        .unwrap_or(u32::MAX)
        .saturating_add(1)
}

/// The id in a rule that is written out.
fn id(fields: &[(Span, Ref<Expr>, Ref<Expr>)]) -> Option<(String, &Span)> {
    fields.iter().find_map(|(_, key, value)| {
        let (key, _) = string(key)?;
        let (value, span) = string(value)?;
        (key == "id").then(|| (value.to_owned(), span))
    })
}

fn string(expr: &Expr) -> Option<(&str, &Span)> {
    match expr {
        Expr::String { span, value, .. } | Expr::RawString { span, value, .. } => {
            value.as_string().ok().map(|text| (&**text, span))
        }
        _ => None,
    }
}

/// The names in a reference that is nothing but names: `a.b["c"]`.
pub(super) fn path(expr: &Expr) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut next = expr;
    loop {
        match next {
            Expr::Var { span, .. } => {
                names.push(span.text().to_owned());
                names.reverse();
                return Some(names);
            }
            Expr::RefDot { refr, field, .. } => {
                names.push(field.1.as_string().ok()?.to_string());
                next = refr;
            }
            Expr::RefBrack { refr, index, .. } => {
                names.push(string(index)?.0.to_owned());
                next = refr;
            }
            _ => return None,
        }
    }
}

/// The reference that `names` make after `data`.
fn reference<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let is_plain = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    names
        .map(|name| {
            if is_plain(name) {
                format!(".{name}")
            } else {
                format!("[{}]", serde_json::Value::from(name.as_str()))
            }
        })
        .collect()
}

fn origin(span: &Span) -> Origin {
    Origin {
        file: span.source.file().clone(),
        line: span.line,
    }
}
