//! What the kernel programs say in words, by aya-log: trouble that is too rare for an event of its own.

use std::sync::{Arc, Mutex, PoisonError};

use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};

/// The programs' messages.
pub(super) struct Messages {
    logger: EbpfLogger<Said>,
    said: Said,
}

/// Messages that were read and not yet taken.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

/// Messages that are kept at most between two calls of [`Messages::take`].
const MAX_MESSAGES: usize = 100;

impl Messages {
    /// Those of a loaded object; `None` if it has no map for them.
    pub(super) fn of(ebpf: &mut Ebpf) -> Option<Self> {
        let said = Said::default();
        let logger = EbpfLogger::init_with_logger(ebpf, said.clone()).ok()?;
        Some(Self { logger, said })
    }

    /// What was said since the last call.
    pub(super) fn take(&mut self) -> Vec<String> {
        self.logger.flush();
        std::mem::take(&mut *self.said.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Log for Said {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < MAX_MESSAGES {
            said.push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_messages_is_bounded() {
        let said = Said::default();
        for _ in 0..2 * MAX_MESSAGES {
            said.log(&Record::builder().args(format_args!("no room")).build());
        }
        assert_eq!(said.0.lock().unwrap().len(), MAX_MESSAGES);
    }
}
