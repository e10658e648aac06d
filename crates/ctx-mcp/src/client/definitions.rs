//! The definitions of a server's tools, held against those that were accepted.

use super::difference::Difference;
use super::memory::{self, Memory, MemoryError, Remembered, ServerKey};
use super::settings::{ToolFilter, UpstreamSettings};
use ctx_core::{Redactor, ToolSpec};
use std::sync::{Arc, Mutex, PoisonError};

/// Definitions of one server that are remembered, in bytes.
const REMEMBERED_BYTES_MAX: usize = 64 << 20;

pub(super) struct Definitions {
    key: ServerKey,
    taken: ToolFilter,
    memory: Option<Arc<dyn Memory>>,
    /// What a server was given may be in what it says of itself, and is not to be written down.
    redactor: Redactor,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    seen: Vec<ToolSpec>,
    /// None as long as nothing was seen.
    accepted: Option<Vec<ToolSpec>>,
    difference: Difference,
    /// Why it cannot be known what was accepted.
    trouble: Option<String>,
}

impl Definitions {
    pub(super) fn new(
        settings: &UpstreamSettings,
        memory: Option<Arc<dyn Memory>>,
        redactor: Redactor,
    ) -> Self {
        let (key, taken) = (ServerKey::of(settings), settings.tools.clone());
        Self { key, taken, memory, redactor, now: Mutex::default() }
    }

    /// The tools that were seen when we last ran.
    pub(super) fn recall(&self) -> Option<Vec<ToolSpec>> {
        let remembered = self.read_memory()?;
        let mut seen = memory::read(&remembered.seen)?;
        self.hold(Some(seen.clone()), Ok(Some(remembered)));
        seen.retain(|spec| self.taken.takes(&spec.name));
        Some(seen)
    }

    /// Remembers what the server has, and tells if it is not what was accepted.
    pub(super) fn see(&self, specs: &[ToolSpec]) {
        let text = serde_json::to_string(specs).map(|text| self.redactor.text(text)).unwrap_or_default();
        // As it is remembered, so that equals stay equal.
        let seen = memory::read(&text).unwrap_or_else(|| specs.to_vec());
        let remembered = match &self.memory {
            None => Ok(None),
            Some(_) if text.len() > REMEMBERED_BYTES_MAX => {
                Err(format!("they are longer than {REMEMBERED_BYTES_MAX} bytes").into())
            }
            Some(memory) => memory.remember(&self.key, &text).map(Some),
        };
        self.hold(Some(seen), remembered);
    }

    /// Looks again at what was accepted: somebody may have done so meanwhile.
    pub(super) fn look_again(&self) {
        if let Some(remembered) = self.read_memory() {
            self.hold(None, Ok(Some(remembered)));
        }
    }

    fn read_memory(&self) -> Option<Remembered> {
        let recalled = self.memory.as_ref()?.recall(&self.key);
        recalled.unwrap_or_else(|error| {
            tracing::warn!("{}: what is remembered of its tools cannot be read: {error}", self.key.name);
            None
        })
    }

    /// Holds what is seen, or was before, against what is accepted.
    fn hold(&self, seen: Option<Vec<ToolSpec>>, remembered: Result<Option<Remembered>, MemoryError>) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.trouble = None;
        let seen = seen.unwrap_or_else(|| std::mem::take(&mut now.seen));
        match remembered {
            Ok(Some(remembered)) => now.accepted = Some(memory::accepted(&remembered.accepted)),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("{}: its tools cannot be remembered: {error}", self.key.name);
                now.trouble = Some(error.to_string());
            }
        }
        let accepted = now.accepted.get_or_insert_with(|| seen.clone());
        let difference = memory::difference(accepted, &seen, &self.taken);
        let is_told = std::mem::replace(&mut now.difference, difference.clone()) == difference;
        now.seen = seen;
        if !is_told && !difference.is_empty() {
            let name = &self.key.name;
            tracing::warn!(
                "{name}: its tools are not those that were accepted: {difference}; look at them with \
                 `ctx upstream list`, accept them with `ctx upstream accept {name}`"
            );
        }
    }

    /// How the tools differ from those that were accepted.
    pub(super) fn difference(&self) -> Difference {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).difference.clone()
    }

    /// Why a tool is not to be called, where it is not the one that was accepted.
    pub(super) fn objection(&self, tool: &str) -> Option<String> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = &now.trouble {
            return Some(format!("whether the definition of `{tool}` was accepted is not known: {trouble}"));
        }
        let what = match &now.difference {
            difference if difference.changed.iter().any(|changed| changed.name == tool) => {
                format!("the definition of `{tool}` has changed since it was accepted")
            }
            difference if difference.added.iter().any(|added| added == tool) => {
                format!("`{tool}` was not there when its tools were accepted")
            }
            _ => return None,
        };
        let name = &self.key.name;
        Some(format!(
            "{what}; look at it with `ctx upstream list`, accept it with `ctx upstream accept {name}`"
        ))
    }
}
