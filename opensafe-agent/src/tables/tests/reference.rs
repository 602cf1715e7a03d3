//! What rules mean, said as plainly as possible: no automaton, no residual.

use opensafe_common::verdict::{Access, Verdict};

use crate::rules::{Peer, RuleSet, Subject};
use crate::view::{Mount, View};

pub(super) const KINDS: [Access; 11] = [
    Access::READ,
    Access::WRITE,
    Access::CREATE,
    Access::EXEC,
    Access::UNIX,
    Access::DELETE,
    Access::RENAME,
    Access::LINK,
    Access::ATTRIBUTES,
    Access::MAP_EXEC,
    Access::IOCTL,
];

/// The verdict for an object at `path` in the superblock of those `mounts`, by all the names it has there.
pub(super) fn decide(
    rules: &RuleSet,
    view: &View,
    same_superblock: impl Fn(&Mount) -> bool,
    path: &[u8],
    kind: Access,
) -> Verdict {
    let names = visible(view)
        .filter(|mount| same_superblock(mount))
        .filter_map(|mount| {
            let rest = path.strip_prefix(bare(&mount.root))?;
            let below = rest.is_empty() || rest[0] == b'/';
            below.then(|| match [bare(&mount.point), rest].concat() {
                root if root.is_empty() => b"/".to_vec(),
                name => name,
            })
        });
    names
        .map(|name| rules.decide_path(&name, kind).verdict)
        .max()
        .unwrap_or_else(|| nameless(rules, kind))
}

/// The mounts that no later one at the same point hides.
pub(super) fn visible(view: &View) -> impl Iterator<Item = &Mount> {
    view.mounts.iter().enumerate().filter_map(|(at, mount)| {
        let mut later = view.mounts[at + 1..].iter();
        (!later.any(|other| other.point == mount.point)).then_some(mount)
    })
}

/// The strictest verdict that any name could bring.
fn nameless(rules: &RuleSet, kind: Access) -> Verdict {
    let everyone = kind == Access::UNIX
        && rules
            .rules
            .iter()
            .any(|rule| rule.subject.is_about_everyone());
    let speaking = rules.rules.iter().filter(|rule| match &rule.subject {
        Subject::Exec(_) => kind == Access::EXEC,
        Subject::File { access, .. } => {
            let changes = Access::CHANGING.union(Access::CREATE);
            access.contains(kind) || rule.hides() && changes.contains(kind)
        }
        Subject::Connect { peers, .. } => {
            let unix = |peer: &Peer| matches!(peer, Peer::UnixPath(_) | Peer::UnixAbstract(_));
            kind == Access::UNIX && (rule.subject.is_about_everyone() || peers.iter().any(unix))
        }
        Subject::Bind { .. } | Subject::Socket(_) | Subject::Operation(_) => false,
    });
    speaking
        .map(|rule| rule.verdict)
        .chain((!everyone).then(|| default(rules, kind)))
        .max()
        .unwrap()
}

fn default(rules: &RuleSet, kind: Access) -> Verdict {
    match kind {
        Access::EXEC => rules.defaults.exec,
        Access::UNIX => rules.defaults.connect,
        // Of whom it was let open.
        Access::MAP_EXEC | Access::IOCTL => Verdict::Allow,
        _ => rules.defaults.file,
    }
}

fn bare(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}
