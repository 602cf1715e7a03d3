//! Keeps credentials out of records: what looks like one in a command's arguments is replaced.
//!
//! It is found by how it looks (the prefixes that services give their tokens) and by where it stands
//! (after `--password`, in an `Authorization` header, before the `@` of a URL), also inside a shell
//! command that is a single argument. What stands there only as a variable's name (`$TOKEN`) stays, and
//! so does everything around it, so that a person still sees what was run.
//!
//! This errs towards hiding, but it cannot know a secret that looks like any other word.

use std::sync::LazyLock;

use regex_automata::{
    meta::{Config, Regex},
    util::syntax,
};

/// What stands in a credential's place.
pub const REDACTED: &[u8] = b"[redacted]";

/// A name's ending that makes its value a secret: `GITHUB_TOKEN`, `db-password`, `apiKey`. Short words
/// count only after a separator: `compass` is no pass.
const SECRET_NAME: &str = r"(?:[A-Za-z0-9_.-]*?(?:token|secret|password|passwd|passphrase|credentials?|api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|signing[_-]?key|encryption[_-]?key|account[_-]?key|client[_-]?secret)|(?:[A-Za-z0-9_.-]*[_.-])(?:pass|pwd|pw|pat))";

/// A value up to where a shell, a query string or a quotation ends it; not a shell variable, nor the
/// output of a command. Its secret is in the group `s`.
const VALUE: &str = r#"(?:\\?"(?<s>[^"$`\\][^"]*?)\\?"|'(?<s2>[^'$][^']*)'|(?<s3>[^\s"'$`&;|<>(),\\][^\s"'&;|<>,]*))"#;

/// Patterns over the bytes of one argument; the groups `s`, `s2`, `s3` are what to replace.
fn patterns() -> Vec<String> {
    vec![
        // Tokens that say what they are.
        r"(?<s>-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.)*)".into(),
        [
            r"(?-i:\b(?<s>sk-[A-Za-z0-9_-]{16,}|[rs]k_(?:live|test)_[A-Za-z0-9]{10,}|gh[pousr]_[A-Za-z0-9]{16,}",
            r"|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{12,}",
            r"|xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[A-Za-z0-9-]{8,}|eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?",
            r"|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{30,}",
            r"|pypi-[A-Za-z0-9_-]{30,}|dckr_pat_[A-Za-z0-9_-]{16,}|dop_v1_[a-f0-9]{32,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}))",
        ]
        .concat(),
        // A user's password, or a token as the user, in a URL.
        r"\b[a-z][a-z0-9+.-]*://[^\s/:@'?#]*:(?<s>[^\s/@'$][^\s/@']*)@".into(),
        r"\b[a-z][a-z0-9+.-]*://(?<s>[A-Za-z0-9_-]{20,})@".into(),
        // Headers.
        r#"\bauthorization\\?["']?\s*[:=]\s*\\?["']?(?:bearer|basic|digest|token|apikey|negotiate)\s+(?<s>[^\s"'$\\][^"'\\\r\n]*)"#.into(),
        r#"\bauthorization\\?["']?\s*[:=]\s*\\?["']?(?<s>[^\s"'$\\]+)\s*(?:["'\\\r\n]|$)"#.into(),
        r#"\b(?:set-)?cookie\s*:\s*(?<s>[^\s"'$][^"'\r\n]*)"#.into(),
        r#"\b(?:x-[a-z0-9-]*(?:token|key|secret|auth)|private-token|job-token|api-key)\s*:\s*(?<s>[^\s"'$][^\s"']*)"#.into(),
        r"\bbearer\s+(?<s>[A-Za-z0-9._~+/=-]{8,})".into(),
        // `NAME=value`, `--name=value`, and `"name": "value"` of JSON.
        format!(r"(?:^|[^A-Za-z0-9_.-])-*{SECRET_NAME}={VALUE}"),
        format!(r#"\\?["']{SECRET_NAME}\\?["']\s*:\s*\\?["'](?<s>[^"'$\\][^"'\\]*)"#),
        // `--name value` inside a shell command.
        format!(r"(?:^|\s)--?{SECRET_NAME}\s+{VALUE}"),
        r#"\b(?:curl|wget|http|https)\b[^|;&\n]*?\s(?:-u|--user|--proxy-user|-a|--auth)[\s=]*["']?[^\s"':$]+:(?<s>[^\s"'$][^\s"']*)"#.into(),
        r#"\bsshpass\s+-p\s*["']?(?<s>[^\s"'$][^\s"']*)"#.into(),
        r#"\bmysql[a-z]*\b[^|;&\n]*?\s-p["']?(?<s>[^\s"'$][^\s"']*)"#.into(),
    ]
}

/// `None` if they cannot be compiled: everything is a secret then.
static PATTERNS: LazyLock<Option<Vec<Regex>>> =
    LazyLock::new(|| patterns().iter().map(|pattern| build(pattern)).collect());

/// Matches a whole argument after which the next one is a secret: `--token`, `-password`.
static SECRET_OPTION: LazyLock<Option<Regex>> =
    LazyLock::new(|| build(&format!("^--?{SECRET_NAME}$")));

fn build(pattern: &str) -> Option<Regex> {
    Regex::builder()
        .configure(Config::new().utf8_empty(false).onepass(false).dfa(false))
        .syntax(
            syntax::Config::new()
                .unicode(false)
                .utf8(false)
                .case_insensitive(true),
        )
        .build(pattern)
        .ok()
}

/// `args` with what looks like a credential replaced by `[redacted]`. Doing it twice changes nothing.
/// Linear in the arguments' length.
#[must_use]
pub fn redact_args(args: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let program = args.first().map_or(&[][..], |arg| base_name(arg));
    let mut before: &[u8] = b"";
    args.iter()
        .map(|arg| {
            let redacted = match standing(program, before, arg) {
                Standing::Secret => REDACTED.to_vec(),
                Standing::UserAndSecret(colon) => [&arg[..=colon], REDACTED].concat(),
                Standing::AfterLetters(length) => [&arg[..length], REDACTED].concat(),
                Standing::Text => redact(arg),
            };
            before = arg;
            redacted
        })
        .collect()
}

/// What an argument is by where it stands.
enum Standing {
    /// Anything.
    Text,
    /// A secret as a whole.
    Secret,
    /// `user:secret`, with the colon there.
    UserAndSecret(usize),
    /// An option's letters, this many bytes, with a secret after them.
    AfterLetters(usize),
}

fn standing(program: &[u8], before: &[u8], arg: &[u8]) -> Standing {
    if arg.is_empty() || arg.starts_with(b"$") {
        return Standing::Text;
    }
    let after_secret_option = SECRET_OPTION
        .as_ref()
        .is_none_or(|option| option.is_match(before));
    if after_secret_option && !arg.starts_with(b"--") {
        return Standing::Secret;
    }
    match program {
        b"curl" | b"wget" | b"http" | b"https" => {
            let takes_user: [&[u8]; 5] = [b"-u", b"--user", b"--proxy-user", b"-a", b"--auth"];
            let value_from = if takes_user.contains(&before) {
                0
            } else if arg.starts_with(b"-u") {
                2
            } else if let Some(value) = arg.strip_prefix(b"--user=") {
                arg.len() - value.len()
            } else {
                return Standing::Text;
            };
            arg[value_from..]
                .iter()
                .position(|byte| *byte == b':')
                .map_or(Standing::Text, |colon| {
                    Standing::UserAndSecret(value_from + colon)
                })
        }
        b"sshpass" if before == b"-p" => Standing::Secret,
        b"sshpass" | b"mysql" | b"mysqldump" | b"mysqladmin" | b"mariadb"
            if arg.starts_with(b"-p") && arg.len() > 2 =>
        {
            Standing::AfterLetters(2)
        }
        _ => Standing::Text,
    }
}

/// `text` with what looks like a credential replaced.
#[must_use]
pub fn redact(text: &[u8]) -> Vec<u8> {
    let Some(patterns) = PATTERNS.as_ref() else {
        return REDACTED.to_vec();
    };
    let mut text = text.to_vec();
    for pattern in patterns {
        let mut clean = Vec::new();
        let mut copied = 0;
        for found in pattern.captures_iter(&text) {
            let secrets = ["s", "s2", "s3"];
            for secret in secrets
                .iter()
                .filter_map(|name| found.get_group_by_name(name))
            {
                clean.extend_from_slice(&text[copied..secret.start]);
                clean.extend_from_slice(REDACTED);
                copied = secret.end;
            }
        }
        if copied > 0 {
            clean.extend_from_slice(&text[copied..]);
            text = clean;
        }
    }
    text
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &[&str]) -> Vec<Vec<u8>> {
        line.iter().map(|arg| arg.as_bytes().to_vec()).collect()
    }

    fn shown(line: &[&str]) -> String {
        let once = redact_args(&args(line));
        assert_eq!(redact_args(&once), once, "twice is not once for {line:?}");
        let words: Vec<_> = once
            .iter()
            .map(|arg| String::from_utf8_lossy(arg).into_owned())
            .collect();
        words.join(" ")
    }

    #[test]
    fn every_pattern_compiles() {
        for pattern in patterns() {
            assert!(build(&pattern).is_some(), "{pattern}");
        }
        assert!(SECRET_OPTION.is_some());
    }

    #[test]
    fn values_of_secret_options_and_variables_are_hidden() {
        let hidden = [
            (&["gh", "--token", "abc123"][..], "gh --token [redacted]"),
            (&["tool", "-password", "x"], "tool -password [redacted]"),
            (&["tool", "--api-key=k"], "tool --api-key=[redacted]"),
            (
                &["env", "DB_PASSWORD=hunter2", "run"],
                "env DB_PASSWORD=[redacted] run",
            ),
            (
                &["env", "AWS_SECRET_ACCESS_KEY=a/b+c"],
                "env AWS_SECRET_ACCESS_KEY=[redacted]",
            ),
            (&["env", "DB_PASS=x"], "env DB_PASS=[redacted]"),
            (
                &["java", "-Dapp.clientSecret=s3"],
                "java -Dapp.clientSecret=[redacted]",
            ),
            (
                &["sshpass", "-p", "pw", "ssh", "-p", "22", "h"],
                "sshpass -p [redacted] ssh -p [redacted] h",
            ),
            (
                &["mysql", "-uroot", "-ppw", "db"],
                "mysql -uroot -p[redacted] db",
            ),
        ];
        for (line, expected) in hidden {
            assert_eq!(shown(line), expected);
        }
    }

    #[test]
    fn a_secret_inside_a_shell_command_is_hidden_and_the_rest_stays() {
        let hidden = [
            (
                "export TOKEN='a b' && make",
                "export TOKEN='[redacted]' && make",
            ),
            (
                "curl -u me:pw https://x/y",
                "curl -u me:[redacted] https://x/y",
            ),
            (
                "curl -H \"Authorization: Bearer abc.def\" https://x",
                "curl -H \"Authorization: Bearer [redacted]\" https://x",
            ),
            (
                "curl -H 'X-Api-Key: k1' https://x",
                "curl -H 'X-Api-Key: [redacted]' https://x",
            ),
            (
                "tool --token t1 --verbose",
                "tool --token [redacted] --verbose",
            ),
            (
                r#"curl -d '{"user": "me", "password": "pw"}' https://x"#,
                r#"curl -d '{"user": "me", "password": "[redacted]"}' https://x"#,
            ),
            (
                "curl 'https://x/?access_token=abc&page=2'",
                "curl 'https://x/?access_token=[redacted]&page=2'",
            ),
        ];
        for (command, expected) in hidden {
            assert_eq!(
                shown(&["bash", "-c", command]),
                format!("bash -c {expected}")
            );
        }
    }

    #[test]
    fn passwords_and_tokens_in_urls_are_hidden() {
        assert_eq!(
            shown(&["git", "clone", "https://me:p4ss@example.org/a.git"]),
            "git clone https://me:[redacted]@example.org/a.git"
        );
        assert_eq!(
            shown(&[
                "git",
                "clone",
                "https://0123456789abcdef0123@example.org/a.git"
            ]),
            "git clone https://[redacted]@example.org/a.git"
        );
        assert_eq!(
            shown(&["psql", "postgres://u:p@db:5432/x"]),
            "psql postgres://u:[redacted]@db:5432/x"
        );
    }

    #[test]
    fn tokens_that_say_what_they_are_are_hidden_wherever_they_stand() {
        let tokens = [
            "sk-ant-api03-abcdefghijklmnop",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "github_pat_11AAAAAAA0abcdefghijkl",
            "AKIAIOSFODNN7EXAMPLE",
            "xoxb-123456789012-abcdef",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
            "glpat-abcdefghijklmnopqrst",
            "hf_abcdefghijklmnopqrstuv",
        ];
        for token in tokens {
            assert_eq!(shown(&["echo", token]), "echo [redacted]", "{token}");
            assert_eq!(
                shown(&["sh", "-c", &format!("login {token}; ls")]),
                "sh -c login [redacted]; ls"
            );
        }
        assert_eq!(
            shown(&[
                "echo",
                "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----"
            ]),
            "echo [redacted]"
        );
    }

    #[test]
    fn what_is_no_secret_stays() {
        let plain = [
            &[
                "git",
                "commit",
                "-m",
                "Fix the token parser: passwords may hold colons",
            ][..],
            &[
                "tool",
                "--max-tokens=100",
                "--tokenizer",
                "gpt2",
                "--token-file=/run/t",
            ],
            &[
                "env",
                "PWD=/work",
                "OLDPWD=/",
                "COMPASS=north",
                "BYPASS=1",
                "KEY=value",
            ],
            &["docker", "login", "--password-stdin", "-u", "me"],
            &["docker", "run", "-u", "1000:1000", "alpine"],
            &["sort", "--key=2", "-k", "1"],
            &["ssh", "-p", "22", "git@example.org"],
            &[
                "sh",
                "-c",
                "curl -H \"Authorization: Bearer $TOKEN\" https://x; echo ${API_KEY}",
            ],
            &[
                "sh",
                "-c",
                "tool --token $TOKEN --password \"$PW\" && TOKEN=$(cat t) make",
            ],
            &["grep", "-rn", "password", "src/"],
            &[
                "python3",
                "-c",
                "print('sk-')",
                "https://example.org:8080/a@b",
            ],
            &["mysql", "-u", "root", "-p"],
            &["rg", r"\btoken\b", "https://example.org/x?page=2"],
            &["git", "clone", "ssh://git@example.org:22/a.git"],
            &["tool", "--token", "--verbose"],
        ];
        for line in plain {
            assert_eq!(shown(line), line.join(" "));
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_no_hiding_place() {
        let redacted = redact_args(&[b"x".to_vec(), b"\xff TOKEN=abc \xfe".to_vec()]);
        assert_eq!(redacted[1], b"\xff TOKEN=[redacted] \xfe");
    }
}
