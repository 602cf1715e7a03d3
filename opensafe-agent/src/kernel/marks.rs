//! Who carries a sandbox's mark, wherever they are: an iterator over all tasks tells.

use std::io::{self, Read as _};

use aya::programs::{Iter, links::LinkError};
use opensafe_common::event::MarkedTask;
use zerocopy::FromBytes as _;

use super::{
    held::Held,
    programs::{self, Programs},
};
use crate::event::Pid;

/// The iterator's program.
pub(super) const PROGRAM: &str = "marked_tasks";

/// The processes with a task that carries the sandbox's mark, each once for each such task. Linux ≥ 5.8.
pub(super) fn of(
    sandbox: u32,
    held: Option<&Held>,
    programs: Option<&mut Programs>,
) -> io::Result<Vec<Pid>> {
    let link = match (held, programs) {
        (Some(held), _) => held
            .link(PROGRAM)
            .and_then(aya::programs::iter::IterLink::try_from)
            .map_err(|error: LinkError| io::Error::other(programs::with_cause(&error)))?,
        (None, Some(programs)) => {
            let program = programs
                .ebpf
                .program_mut(PROGRAM)
                .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            <&mut Iter>::try_from(program)
                .and_then(|iterator| {
                    let link = iterator.attach()?;
                    iterator.take_link(link)
                })
                .map_err(|error| io::Error::other(programs::describe(&error)))?
        }
        (None, None) => return Err(io::ErrorKind::NotFound.into()),
    };
    let mut told = Vec::new();
    link.into_file()
        .map_err(io::Error::other)?
        .read_to_end(&mut told)?;
    Ok(processes_in(sandbox, &told))
}

fn processes_in(sandbox: u32, told: &[u8]) -> Vec<Pid> {
    told.chunks_exact(size_of::<MarkedTask>())
        .filter_map(|task| MarkedTask::read_from_bytes(task).ok())
        .filter(|task| task.sandbox == sandbox)
        .map(|task| Pid(task.process))
        .collect()
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::*;

    #[test]
    fn other_sandboxes_tasks_are_theirs() {
        let task = |process, sandbox| MarkedTask { process, sandbox };
        let told = [task(10, 0), task(11, 1), task(11, 1), task(12, 2)];
        assert_eq!(processes_in(1, told.as_bytes()), [Pid(11), Pid(11)]);
        assert_eq!(processes_in(3, told.as_bytes()), []);
    }
}
