//! The longer texts of the help: examples, exit statuses, files.

use clap::builder::styling::{AnsiColor, Styles};

/// As cargo has them.
pub(super) const STYLES: Styles = Styles::styled()
    .header(AnsiColor::BrightGreen.on_default().bold())
    .usage(AnsiColor::BrightGreen.on_default().bold())
    .literal(AnsiColor::BrightCyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default())
    .error(AnsiColor::BrightRed.on_default().bold())
    .valid(AnsiColor::BrightCyan.on_default().bold())
    .invalid(AnsiColor::BrightYellow.on_default().bold());

pub(super) const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nrecord format 1\npolicies in Rego v1, evaluated by regorus\nhttps://github.com/opensafe/opensafe"
);

pub(super) const SEE_ALSO: &str = "\
See 'opensafe --help' for examples and exit statuses, and
'opensafe COMMAND --help' for a command.";

pub(super) const OPENSAFE: &str = "\
Examples:
  What can this host enforce, and does it hold?
      sudo opensafe doctor
      sudo opensafe boundary test
  Run an agent on the project in this directory:
      sudo opensafe run --policy coding-agent -- some-agent fix-issue 1867
  Why did that fail?
      opensafe events --denied

Exit statuses:
  0    done
  1    the answer is no: a policy is not fit, a test failed, a run is not there
  2    the command line makes no sense
  125  'run' or 'doctor' itself failed
  'run' otherwise exits as its command did; 'doctor' with 0, 1 or 2 says that
  this host enforces everything, a part, or nothing; 'boundary' with 0 or 1
  that it holds or does not, with 2 that this could not be found out.

Privileges:
  'run', 'adopt', 'freeze', 'thaw', 'kill', 'policy apply', 'doctor' and
  'boundary test' take root; the other commands do not.

Environment:
  NO_COLOR, CLICOLOR_FORCE  never, or always, use colour
  COLUMNS                   how wide the terminal is to which a pipe leads, if
                            colour is always used
  XDG_STATE_HOME            where records are, below opensafe/runs
                            [default: ~/.local/state]
  OPENSAFE_POLICY_PATH      where policies are that are named without a path,
                            before /usr/share/opensafe/policies";

pub(super) const RUN: &str = "\
Examples:
  Hold an agent to the policy for coding agents, on the project here:
      sudo opensafe run --policy coding-agent -- some-agent --its --flags
  See what your own policy would deny, without denying anything:
      sudo opensafe run --policy ./policy --mode observe -- make test
  On a host that cannot enforce everything:
      sudo opensafe run --partial -- some-agent

Exit statuses:
  The command's own, or 128 and the signal's number if a signal ended it; and
  2    the command line makes no sense
  125  opensafe itself failed; the command was not started
  126  the command cannot be executed
  127  the command is not found

Privileges:
  Loading programs into the kernel takes root. Through sudo, the command runs
  as the calling user, and the record is theirs.";

pub(super) const EVENTS: &str = "\
Examples:
  The latest run's denials:
      opensafe events --denied
  Everything that a run contacted or executed:
      opensafe events 7f3k2 --event connect,exec
  What did it try outside its own files and processes?
      opensafe events 7f3k2 --event bind,socket,mount,ptrace,signal,kernel
  Which files did it write?
      opensafe events 7f3k2 --event file --json | jq -r '
        select(.\"opensafe.file.access\" | index(\"write\")) | .\"file.path\"' | sort -u

Notes:
  On a terminal, what does not fit is cut with '…'; nothing is elsewhere, or
  with --denied.
  The keys of --json are in docs/events.md.

Exit statuses:
  0  also if nothing matches
  1  there is no such record, or it cannot be read
  2  the command line makes no sense";

pub(super) const RUNS: &str = "\
Examples:
  The latest ten:
      opensafe runs --last 10
  Delete what is older than a month:
      opensafe runs --prune 30d

Notes:
  Records are in $XDG_STATE_HOME/opensafe/runs, by default below
  ~/.local/state; through sudo, they are the calling user's. A run whose
  record has no end is 'cut off': opensafe was killed, or the disk was full.
  Nothing but --prune deletes a record; one that 'run --record' put elsewhere
  is not found here.

Exit statuses:
  0  also if there are none
  1  they cannot be listed, or one cannot be deleted
  2  the command line makes no sense";

pub(super) const FREEZE: &str = "\
Examples:
  Have a look at what it is about to do:
      sudo opensafe freeze 7f3k2
      opensafe events 7f3k2 --denied
      sudo opensafe thaw 7f3k2

Privileges:
  It takes root.

Exit statuses:
  0  all have stopped
  1  there is no such run, it has ended, or not all have stopped in time
  2  the command line makes no sense";

pub(super) const THAW: &str = "\
Examples:
      sudo opensafe thaw 7f3k2

Notes:
  A response freezes again if its policy's events go on.

Privileges:
  It takes root.

Exit statuses:
  0  it goes on, also if it was not frozen
  1  there is no such run, or it has ended
  2  the command line makes no sense";

pub(super) const ADOPT: &str = "\
Examples:
      sudo opensafe adopt 7f3k2aaa
  In the background, until the run ends:
      sudo opensafe adopt --quiet 7f3k2aaa &
  With a new version, from the one that has started it:
      sudo ./opensafe adopt --take-over 7f3k2aaa

Privileges:
  It takes root.

Without it:
  The next 'opensafe run' has every run taken up that nobody attends to.

Exit statuses:
  that of the command, as 'opensafe run'; 0 if the run was taken over from this one
  125  there is no such run, somebody attends to it, or a newer version did, or one with other
       programs in the kernel; or how the command ended is not known
  2    the command line makes no sense";

pub(super) const KILL: &str = "\
Examples:
      sudo opensafe kill 7f3k2

Privileges:
  It takes root.

Exit statuses:
  0  they are killed
  1  there is no such run, or it has ended
  2  the command line makes no sense";

pub(super) const DOCTOR: &str = "\
Examples:
      sudo opensafe doctor
      sudo opensafe doctor --json | jq .enforcement

Privileges:
  Loading programs into the kernel takes root. Nothing is left behind.

Exit statuses:
  0    exec, file and connect rules are fully enforced here
  1    a part is
  2    nothing is, or the command line makes no sense
  125  it could not be found out";

pub(super) const BOUNDARY_TEST: &str = "\
Examples:
  Does the sandbox hold on this host?
      sudo opensafe boundary test
  Does it hold with your own policy?
      sudo opensafe boundary test --policy coding-agent --policy ./policy
  What does bubblewrap stop, and what only OpenSafe around it?
      sudo opensafe boundary test --runtime bwrap
  What gets out of it, for a script:
      sudo opensafe boundary test --json | jq '.attempts[]
          | select(.outcome | IN(\"stopped\", \"by_runtime\", \"not_tried\") | not)'

Privileges:
  Loading programs into the kernel takes root, and the attempts are made as
  root, whom nothing else would stop. Nothing is left behind.

Exit statuses:
  0  all that was tried was stopped and is on record; ordinary work passed
  1  something got through or is not on record, or ordinary work failed
  2  it could not be tried, the runtime does not start, or the command line
     makes no sense";

pub(super) const BOUNDARY_AUDIT: &str = "\
Examples:
  What would a run be given here?
      opensafe boundary audit --policy coding-agent --workspace ~/project
  What has one that goes on?
      sudo opensafe boundary audit xjx3f04d
  What has a container?
      sudo opensafe boundary audit --pid \"$(docker inspect -f '{{.State.Pid}}' c)\"

Privileges:
  None for your own processes; root for those of others.

Exit statuses:
  0  nothing above low was found
  1  something was
  2  it could not be found out, or the command line makes no sense";

pub(super) const POLICY_APPLY: &str = "\
Examples:
  Deny what turned out to be too much, while the agent goes on:
      sudo opensafe policy apply 7f3k2aaa ./stricter
  Which policies a run had, and when:
      opensafe events 7f3k2aaa --event run.start --event policy.applied

Exit statuses:
  0  it is in force
  1  it is not, and the one before is
  2  the command line makes no sense";

pub(super) const POLICY_CHECK: &str = "\
Examples:
      opensafe policy check ./policy
      opensafe policy check --workspace ~/project coding-agent ./additions.rego

Exit statuses:
  0  it is fit
  1  it is not: the error names the file and line, or the rule
  2  the command line makes no sense";

pub(super) const POLICY_RULES: &str = "\
Examples:
      opensafe policy rules coding-agent --workspace ~/project
      opensafe policy rules ./policy --json | jq '.rules[] | select(.verdict == \"deny\")'

Exit statuses:
  0  done
  1  the policy is not fit to be enforced
  2  the command line makes no sense";

pub(super) const POLICY_TEST: &str = "\
Exit statuses:
  0  every test passed
  1  one did not, or there is none
  2  the command line makes no sense";

pub(super) const COMPLETIONS: &str = "\
Examples:
      opensafe completions bash > ~/.local/share/bash-completion/completions/opensafe
      opensafe completions zsh > ~/.zfunc/_opensafe
      opensafe completions fish > ~/.config/fish/completions/opensafe.fish";

pub(super) const MAN: &str = "\
Examples:
      opensafe man | man -l -
      sudo opensafe man --out /usr/local/share/man/man1";
