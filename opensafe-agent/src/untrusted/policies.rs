//! What policies evaluate to, and the words in it.

use regorus::Value;

use crate::{
    cli::rules_json,
    policy::checked,
    rules::{
        Peer, RuleSet,
        glob::{PathGlob, components, escape},
        peer::{PortRange, Protocol},
        socket::SocketKind,
    },
};

/// What a policy may evaluate to is refused in words, or is rules: each once, in order, and the same if they are read again
/// as they are shown.
pub(super) fn rules(bytes: &[u8]) {
    let Some((defaults, rules)) = value(bytes) else {
        return;
    };
    match checked(defaults.as_ref(), &rules) {
        Ok((defaults, rules)) => {
            assert!(rules.is_sorted_by(|a, b| a.id < b.id));
            let set = RuleSet {
                defaults,
                rules,
                revision: "test@0".to_owned(),
            };
            let shown = rules_json(&set).to_string();
            let (defaults, rules) = value(shown.as_bytes()).expect("what is shown is JSON");
            let (defaults, rules) =
                checked(defaults.as_ref(), &rules).expect("what is shown is a policy's");
            let again = RuleSet {
                defaults,
                rules,
                revision: "test@0".to_owned(),
            };
            assert_eq!(rules_json(&again).to_string(), shown);
        }
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                // A rule's name, a key and its value are quoted, and not the whole of a long one.
                assert!(error.len() < 4096, "{error}");
                assert!(!error.contains('\n'), "{error}");
            }
        }
    }
}

/// `{"defaults": …, "rules": …}`.
fn value(bytes: &[u8]) -> Option<(Option<Value>, Value)> {
    let value = Value::from_json_str(std::str::from_utf8(bytes).ok()?).ok()?;
    let get = |key: &str| match &value[&Value::from(key)] {
        Value::Undefined => None,
        some => Some(some.clone()),
    };
    Some((get("defaults"), get("rules").unwrap_or(Value::new_array())))
}

/// A glob is refused in words, or is the same read again, and names the literal paths that it has.
pub(super) fn glob(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(glob) = PathGlob::parse(text) {
        assert_eq!(PathGlob::parse(&glob.to_string()), Ok(glob.clone()));
        for prefix in glob.literal_prefixes() {
            assert!(prefix.starts_with(b"/"));
            assert!(components(&prefix).all(|name| name != b"." && name != b".."));
        }
        let _ = glob.matches(bytes);
        let literal = glob.literal_prefix();
        let itself = PathGlob::parse(&escape(&literal)).expect("a path is a glob");
        assert!(itself.matches(&literal));
    }
}

/// Peers, ports, protocols and sockets are refused in words, or the same if they are read again as they are shown.
pub(super) fn peer(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(peer) = Peer::parse(text) {
        let again = Peer::parse(&peer.to_string());
        assert_eq!(format!("{again:?}"), format!("Ok({peer:?})"));
    }
    if let Ok(ports) = PortRange::parse(text) {
        assert_eq!(PortRange::parse(&ports.to_string()), Ok(ports));
        assert!(ports.contains(ports.first) && ports.contains(ports.last) && !ports.contains(0));
    }
    if let Ok(kind) = SocketKind::parse(text) {
        assert_eq!(SocketKind::parse(&kind.to_string()), Ok(kind));
    }
    if let Ok(protocol) = Protocol::parse(text) {
        assert_eq!(protocol.name(), text);
    }
}
