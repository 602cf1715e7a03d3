//! Places that matter, as data. `~` is the user's home, `%` the workspace.

use crate::rules::Severity::{self, Critical, High, Low, Medium};

/// A place, what it is, and how much it matters.
pub(super) type Place = (&'static str, &'static str, Severity);

/// What an agent has no business reading.
pub(super) const SECRETS: &[Place] = &[
    ("~/.ssh", "SSH keys", High),
    ("~/.gnupg", "OpenPGP keys", High),
    ("~/.aws", "AWS credentials", High),
    ("~/.config/gcloud", "Google Cloud credentials", High),
    ("~/.azure", "Azure credentials", High),
    ("~/.kube", "Kubernetes credentials", High),
    ("~/.docker/config.json", "registry credentials", High),
    ("~/.config/gh", "GitHub's token", High),
    ("~/.git-credentials", "Git's passwords", High),
    ("~/.netrc", "passwords for hosts", High),
    ("~/.password-store", "a password store", High),
    ("~/.local/share/keyrings", "the desktop's keyring", High),
    ("~/.mozilla", "a browser's cookies and passwords", High),
    (
        "~/.config/google-chrome",
        "a browser's cookies and passwords",
        High,
    ),
    (
        "~/.config/chromium",
        "a browser's cookies and passwords",
        High,
    ),
    ("~/.pypirc", "a package registry's token", Medium),
    (
        "~/.cargo/credentials.toml",
        "a package registry's token",
        Medium,
    ),
    ("~/.npmrc", "a package registry's token, perhaps", Low),
    ("~/.bash_history", "what was typed", Low),
    ("~/.zsh_history", "what was typed", Low),
    ("/etc/shadow", "password hashes", High),
    ("/root/.ssh", "root's SSH keys", High),
    ("/var/run/secrets", "a service account's token", High),
    ("/etc/kubernetes", "a cluster's keys", High),
];

/// What others run, sooner or later.
pub(super) const START_UP: &[Place] = &[
    ("~/.ssh/authorized_keys", "who may log in", High),
    ("~/.bashrc", "what shells run", Medium),
    ("~/.bash_profile", "what shells run", Medium),
    ("~/.profile", "what shells run", Medium),
    ("~/.zshrc", "what shells run", Medium),
    ("~/.zprofile", "what shells run", Medium),
    ("~/.config/fish/config.fish", "what shells run", Medium),
    ("~/.gitconfig", "what Git runs", Medium),
    ("~/.config/git/config", "what Git runs", Medium),
    ("~/.config/autostart", "what the desktop starts", Medium),
    ("~/.config/systemd/user", "services of the user", Medium),
    ("~/.local/bin", "programs on the path", Medium),
    ("~/bin", "programs on the path", Medium),
    ("/etc/profile.d", "what everyone's shells run", High),
    ("/etc/cron.d", "what cron runs", High),
    ("/etc/ld.so.preload", "what every program loads", High),
    ("/usr/local/bin", "programs on the path", High),
    ("%/.git/hooks", "what Git runs, outside too", Medium),
    ("%/.git/config", "what Git runs, outside too", Medium),
    ("%/.envrc", "what direnv runs", Medium),
    ("%/.vscode/tasks.json", "what the editor runs", Medium),
];

/// What other projects use, too.
pub(super) const CACHES: &[Place] = &[
    ("~/.cargo", "Rust's packages and programs", Low),
    ("~/.npm", "npm's packages", Low),
    ("~/.cache/pip", "pip's packages", Low),
    ("~/.cache/uv", "uv's packages", Low),
    ("~/.m2", "Maven's packages", Low),
    ("~/.gradle", "Gradle's packages", Low),
    ("~/go/pkg", "Go's packages", Low),
];

/// Sockets by which others do things for whoever asks.
pub(super) const SOCKETS: &[Place] = &[
    ("/run/docker.sock", "Docker: root of the host", Critical),
    (
        "/run/containerd/containerd.sock",
        "containerd: root of the host",
        Critical,
    ),
    ("/run/crio/crio.sock", "CRI-O: root of the host", Critical),
    (
        "/run/podman/podman.sock",
        "Podman: root of the host",
        Critical,
    ),
    (
        "/run/libvirt/libvirt-sock",
        "libvirt: the host's machines",
        High,
    ),
    ("/run/systemd/private", "systemd: any service", High),
    (
        "/run/user/$UID/podman/podman.sock",
        "the user's containers",
        High,
    ),
    ("/run/user/$UID/docker.sock", "the user's containers", High),
    (
        "/run/user/$UID/systemd/private",
        "the user's services",
        High,
    ),
    (
        "/run/user/$UID/bus",
        "the user's session, services included",
        High,
    ),
    (
        "/run/user/$UID/gnupg/S.gpg-agent",
        "the user's OpenPGP keys",
        Medium,
    ),
    ("/run/dbus/system_bus_socket", "the system's services", Low),
];
