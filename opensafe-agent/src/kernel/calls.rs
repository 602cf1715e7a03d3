//! What another process asks of whoever attends to a run, and what that answers.
//!
//! Both are maps in a directory beside the run's state ([`super::kept`]): whoever may pin there may load programs, no sandbox
//! reaches it, and nothing of it is left when the programs go. A call is whole before it can be found, and it and its answer have
//! names that no other call has ever had: whoever finds one, and looks again later, finds that one or none.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    Kernel,
    held::Held,
    kept::{Head, Left, pin_of, read_back, read_head, write_down},
    own::began_cs,
    share::Sharing,
};

/// A call that waits for its answer. Dropped, it is taken back.
#[derive(Debug)]
pub struct Asked {
    call: PathBuf,
    answer: PathBuf,
}

/// A call that somebody waits for an answer to.
#[derive(Debug)]
pub struct Call {
    /// What is asked for.
    pub bytes: Vec<u8>,
    head: Head,
    call: PathBuf,
    answer: PathBuf,
}

/// What the names of both begin with; then come the caller's id and when it began.
const CALL: &str = "call-";
const ANSWER: &str = "answer-";

impl Left {
    /// Asks whoever attends to the run for something. A process asks once at a time.
    ///
    /// # Errors
    /// If the run has ended, or there is no memory.
    pub fn call(&self, bytes: &[u8]) -> io::Result<Asked> {
        let calls = self.place.join(calls_of(&self.run));
        match fs::create_dir(&calls) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let caller = format!("{}-{}", std::process::id(), began_cs());
        let asked = Asked {
            call: calls.join(format!("{CALL}{caller}")),
            answer: calls.join(format!("{ANSWER}{caller}")),
        };
        write_down(&asked.call, &Head::now(self.sandbox), bytes)?;
        Ok(asked)
    }

    /// Whether the process that attended to it when this was read still does.
    #[must_use]
    pub fn is_attended(&self) -> bool {
        let head = read_head(&self.place.join(pin_of(&self.run)));
        self.agent.is_some() && head.is_ok_and(|head| head.agent() == self.agent)
    }
}

impl Asked {
    /// The answer, once it is there.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn answer(&self) -> io::Result<Option<Vec<u8>>> {
        match self.answer.try_exists()? {
            true => read_back(&self.answer).map(|(_, answer)| Some(answer)),
            false => Ok(None),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // In this order: see `Call::waits`.
        let _ = fs::remove_file(&self.call);
        let _ = fs::remove_file(&self.answer);
    }
}

impl Kernel {
    /// What somebody asks for who waits for the answer; of several, the first.
    pub fn call(&mut self) -> Option<io::Result<Call>> {
        let held = self.held.as_ref()?;
        let run = self.kept.as_ref()?.run();
        let calls = PathBuf::from(held.pin_path(&calls_of(run)));
        let entries = fs::read_dir(&calls).ok()?.flatten();
        let waiting = entries.filter_map(|entry| {
            let name = entry.file_name();
            waiting(&calls, name.to_str()?.strip_prefix(CALL)?)
        });
        let mut call = waiting.min_by_key(|call| call.head.seen_ns())?;
        match read_back(&call.call) {
            Ok((_, bytes)) => {
                call.bytes = bytes;
                Some(Ok(call))
            }
            // It has just been taken back.
            Err(_) if !call.waits() => None,
            Err(error) => {
                let _ = fs::remove_file(&call.call);
                Some(Err(error))
            }
        }
    }

    /// Has the caller attend to the run from now on, from where this process has last noted to be. When this value is dropped then, all stays as it is.
    ///
    /// # Errors
    /// If that cannot be noted. Then nothing has changed.
    pub fn hand_over(&mut self, call: &Call) -> io::Result<()> {
        let kept = self.kept.as_mut().ok_or(io::ErrorKind::NotFound)?;
        kept.give(&call.head).map_err(io::Error::other)?;
        self.kept = None;
        self.sharing = Sharing::No;
        Ok(())
    }
}

/// A call that waits, without what it asks for.
fn waiting(calls: &Path, caller: &str) -> Option<Call> {
    let call = Call {
        bytes: Vec::new(),
        call: calls.join(format!("{CALL}{caller}")),
        answer: calls.join(format!("{ANSWER}{caller}")),
        // It may have been taken back by now.
        head: read_head(&calls.join(format!("{CALL}{caller}"))).ok()?,
    };
    if call.head.agent().is_none() {
        // Whoever is gone takes nothing back.
        let _ = fs::remove_file(&call.call);
        let _ = fs::remove_file(&call.answer);
        return None;
    }
    call.waits().then_some(call)
}

impl Call {
    /// Whether somebody still waits for the answer.
    ///
    /// An answer is fetched, then its call is taken back, then the answer. So where there is no answer, and the call is there
    /// after that, there was none.
    #[must_use]
    pub fn waits(&self) -> bool {
        !self.answer.exists() && self.call.exists() && self.head.agent().is_some()
    }

    /// The process that waits for the answer.
    #[must_use]
    pub const fn caller(&self) -> u32 {
        self.head.agent
    }

    /// Answers it.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn answer(self, bytes: &[u8]) -> io::Result<()> {
        write_down(&self.answer, &Head::ours(0, 0), bytes).map(drop)
    }
}

/// Takes out what nobody will answer any more, or fetch.
pub(super) fn forget(held: &Held, run: &str) {
    held.forget_directory(&calls_of(run));
}

/// Where a run's calls are.
fn calls_of(run: &str) -> String {
    format!("calls-{run}")
}
