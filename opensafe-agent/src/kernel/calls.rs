//! What another process asks of whoever attends to a run, and what that answers.
//!
//! Both are maps beside the run's state ([`super::kept`]): whoever may pin there may load programs, no sandbox reaches it, and
//! nothing of it is left when the programs go. A call is whole before it can be found, there is one at a time, and its answer
//! has the caller's name.

use std::{fs, io, path::PathBuf};

use super::{
    Kernel,
    held::Held,
    kept::{Head, Left, Progress, pin_of, read_back, read_head, write_down},
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
    /// Tells it from the next one, which has its path.
    head: Head,
    call: PathBuf,
    answer: PathBuf,
}

impl Left {
    /// Asks whoever attends to the run for something.
    ///
    /// # Errors
    /// `AlreadyExists` if somebody else does just now, or did and was killed: then whoever attends to the run takes it out when
    /// it looks; or if there is no memory.
    pub fn call(&self, bytes: &[u8]) -> io::Result<Asked> {
        let call = self.place.join(call_of(&self.run));
        let answer = answer_to(&self.run, std::process::id());
        let answer = self.place.join(answer);
        // That of a process which had our number and has gone.
        let _ = fs::remove_file(&answer);
        write_down(&call, &Head::now(self.sandbox), bytes)?;
        Ok(Asked { call, answer })
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
        // In this order: see `Kernel::call`.
        let _ = fs::remove_file(&self.call);
        let _ = fs::remove_file(&self.answer);
    }
}

impl Kernel {
    /// What somebody asks for who waits for the answer.
    pub fn call(&mut self) -> Option<io::Result<Call>> {
        let held = self.held.as_ref()?;
        let run = self.kept.as_ref()?.run();
        let pin = |name: String| PathBuf::from(held.pin_path(&name));
        let call = pin(call_of(run));
        if !call.exists() {
            return None;
        }
        let (head, bytes) = match read_back(&call) {
            Ok(read) => read,
            // It has just been taken back, or is none.
            Err(_) if !call.exists() => return None,
            Err(error) => {
                let _ = fs::remove_file(&call);
                return Some(Err(error));
            }
        };
        let Some(caller) = head.agent() else {
            // Nobody else takes out what is not theirs, so it is still this one.
            let _ = fs::remove_file(&call);
            return None;
        };
        let answer = pin(answer_to(run, caller));
        let call = Call {
            bytes,
            head,
            call,
            answer,
        };
        // In this order: an answer is fetched, then the call is taken back, then its answer. So where there is no answer, and
        // the call is there after that, there was none.
        (!call.answer.exists() && call.waits()).then_some(Ok(call))
    }
}

impl Kernel {
    /// Has the caller attend to the run from now on. When this value is dropped then, all stays as it is.
    ///
    /// # Errors
    /// If that cannot be noted. Then nothing has changed.
    pub fn hand_over(&mut self, call: &Call, progress: Progress) -> io::Result<()> {
        let kept = self.kept.as_mut().ok_or(io::ErrorKind::NotFound)?;
        kept.give(&call.head, progress).map_err(io::Error::other)?;
        self.kept = None;
        self.sharing = Sharing::No;
        Ok(())
    }
}

impl Call {
    /// Whether somebody still waits for the answer.
    #[must_use]
    pub fn waits(&self) -> bool {
        read_head(&self.call).is_ok_and(|head| head == self.head && head.agent().is_some())
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
    held.forget(&call_of(run));
    let answers = answers_to(run);
    for entry in fs::read_dir(held.pin_path("."))
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        if let Some(name) = name.to_str().filter(|name| name.starts_with(&answers)) {
            held.forget(name);
        }
    }
}

/// What a call's map is called.
fn call_of(run: &str) -> String {
    format!("call-{run}")
}

/// What its answer's is.
fn answer_to(run: &str, caller: u32) -> String {
    format!("{}{caller}", answers_to(run))
}

fn answers_to(run: &str) -> String {
    format!("answer-{run}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_has_the_answer_to_another() {
        assert!(!answer_to("7f3k2aaab", 12).starts_with(&answers_to("7f3k2aaa")));
        assert!(answer_to("7f3k2aaa", 12).starts_with(&answers_to("7f3k2aaa")));
    }
}
