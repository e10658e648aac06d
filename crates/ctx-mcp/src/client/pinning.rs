//! Tool pinning: compares the definition of a server with the one that the user accepted (trust on first
//! use).

use super::definition::ServerDefinition;
use super::definition_store::{self, DefinitionStore, DefinitionStoreError, ServerKey, StoredDefinitions};
use super::difference::{DefinitionDiff, PROMPT};
use super::settings::{DefinitionChangePolicy, ToolFilter, UpstreamSettings};
use ctx_core::{Redactor, ToolSpec, escape_line};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a definition; a larger one is not stored.
const DEFINITION_BYTES_MAX: usize = 64 << 20;

/// Retries of adding new parts to the accepted definition, while other processes replace it.
const EXTEND_ATTEMPTS_MAX: usize = 3;

pub(super) struct PinnedDefinitions {
    key: ServerKey,
    filter: ToolFilter,
    changes: DefinitionChangePolicy,
    memory: Option<Arc<dyn DefinitionStore>>,
    /// Masks secrets before a definition is stored: a server may repeat those that it was given.
    redactor: Redactor,
    state: Mutex<PinState>,
    /// Held from reading `state` to replacing it, so that concurrent listings do not undo each other. Fair: the listing
    /// that came last is stored last. Held across I/O, so only blocking threads may wait for it.
    updating: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct PinState {
    seen: ServerDefinition,
    /// `None` until the first definition is seen or loaded.
    accepted: Option<ServerDefinition>,
    difference: DefinitionDiff,
    /// Places that contain invisible characters.
    invisible_places: Vec<String>,
    /// The error of the store, if the accepted definition is unknown because of it.
    store_error: Option<String>,
}

impl PinnedDefinitions {
    pub(super) fn new(
        settings: &UpstreamSettings,
        memory: Option<Arc<dyn DefinitionStore>>,
        redactor: Redactor,
    ) -> Self {
        let (key, filter) = (ServerKey::of(settings), settings.tools.clone());
        let (state, updating) = Default::default();
        Self { key, filter, changes: settings.changes, memory, redactor, state, updating }
    }

    /// The tools of the stored definition, from an earlier run. Called once, before all other methods.
    pub(super) fn load_tools(&self) -> Option<Vec<Arc<ToolSpec>>> {
        let remembered = self.load_stored()?;
        let seen = ServerDefinition::parse(&remembered.seen)?;
        let mut tools = seen.visible_tools();
        self.compare(Some(seen), Ok(Some(remembered)));
        tools.retain(|spec| self.filter.allows(&spec.name));
        Some(tools)
    }

    /// Stores the definition of the server, and warns if it is not the accepted one. Parts that could not be listed
    /// keep their last value.
    pub(super) fn record(&self, seen: ServerDefinition) {
        let _updating = self.updating.blocking_lock();
        self.save(seen);
    }

    /// [`Self::record`] for a definition without tools, of which only prompts, templates or resources were listed.
    pub(super) fn record_features(&self, mut seen: ServerDefinition) {
        let _updating = self.updating.blocking_lock();
        seen.tools.clone_from(&self.state().seen.tools);
        self.save(seen);
    }

    /// Reads the accepted definition again: the user may have accepted another one in another process.
    pub(super) fn reload_accepted(&self) {
        let _updating = self.updating.blocking_lock();
        if let Some(remembered) = self.load_stored() {
            self.compare(None, Ok(Some(remembered)));
        }
    }

    fn save(&self, mut seen: ServerDefinition) {
        {
            let state = self.state();
            seen.fill(&state.seen);
            seen.share_equal_tools(&state.seen);
        }
        let unmasked = serde_json::to_string(&seen).unwrap_or_default();
        let text = self.redactor.text(unmasked.clone());
        // Compared as it is stored, with secrets masked: otherwise an unchanged definition would differ.
        if text != unmasked
            && let Some(mut masked) = ServerDefinition::parse(&text)
        {
            masked.share_equal_tools(&seen);
            seen = masked;
        }
        drop(unmasked);
        let remembered = match &self.memory {
            None => Ok(None),
            Some(_) if text.len() > DEFINITION_BYTES_MAX => {
                Err(format!("the definition is larger than {DEFINITION_BYTES_MAX} bytes").into())
            }
            Some(memory) => memory.record_seen(&self.key, &text).map(Some),
        };
        self.compare(Some(seen), remembered);
    }

    fn load_stored(&self) -> Option<StoredDefinitions> {
        let loaded = self.memory.as_ref()?.load(&self.key);
        loaded.unwrap_or_else(|error| {
            tracing::warn!("{}: cannot load its stored definition: {error}", self.key.name);
            None
        })
    }

    /// Compares a definition, or without one the definition seen last, with the accepted one.
    fn compare(
        &self,
        seen: Option<ServerDefinition>,
        remembered: Result<Option<StoredDefinitions>, DefinitionStoreError>,
    ) {
        self.compare_with_retries(seen, remembered, EXTEND_ATTEMPTS_MAX);
    }

    fn compare_with_retries(
        &self,
        seen: Option<ServerDefinition>,
        remembered: Result<Option<StoredDefinitions>, DefinitionStoreError>,
        attempts_left: usize,
    ) {
        let name = &self.key.name;
        let mut state = self.state();
        state.store_error = None;
        let is_stored_as_seen = seen.is_some();
        let seen = seen.unwrap_or_else(|| std::mem::take(&mut state.seen));
        let mut before = None;
        match remembered {
            Ok(Some(remembered)) => {
                state.accepted = Some(match is_stored_as_seen && remembered.accepted == remembered.seen {
                    true => seen.clone(),
                    false => {
                        let mut accepted = definition_store::parse_accepted(&remembered.accepted);
                        accepted.share_equal_tools(&seen);
                        accepted
                    }
                });
                before = Some(remembered.accepted);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("{name}: cannot store its definition: {error}");
                state.store_error = Some(error.to_string());
            }
        }
        let accepted = state.accepted.get_or_insert_with(|| seen.clone());
        // Trust on first use, for each part: one that was never seen before is accepted.
        let is_filled = accepted.fill(&seen);
        let filled = is_filled.then(|| serde_json::to_string(accepted).unwrap_or_default());
        let difference = DefinitionDiff::of(accepted, &seen, &self.filter);
        let invisible_places = seen.invisible_places();
        let is_reported = std::mem::replace(&mut state.difference, difference.clone()) == difference;
        let are_places_reported =
            std::mem::replace(&mut state.invisible_places, invisible_places.clone()) == invisible_places;
        state.seen = seen;
        drop(state);
        if let (Some(memory), Some(before), Some(filled)) = (&self.memory, before, filled) {
            match memory.replace_accepted(&self.key, &before, &filled) {
                Ok(true) => {}
                // The user has accepted another definition meanwhile, which counts.
                Ok(false) if attempts_left > 0 => {
                    if let Some(remembered) = self.load_stored() {
                        return self.compare_with_retries(None, Ok(Some(remembered)), attempts_left - 1);
                    }
                }
                Ok(false) => {
                    tracing::debug!("{name}: cannot store its accepted definition: it changes too often")
                }
                Err(error) => tracing::debug!("{name}: cannot store its accepted definition: {error}"),
            }
        }
        if !is_reported && !difference.is_empty() {
            tracing::warn!(
                "{name}: its tools differ from the accepted ones: {difference}; review them with \
                 `ctx upstream list`, accept them with `ctx upstream accept {name}`"
            );
        }
        if !are_places_reported && !invisible_places.is_empty() {
            tracing::warn!("{name}: {}", describe_invisible(&invisible_places));
        }
    }

    /// How the definition differs from the accepted one.
    pub(super) fn difference(&self) -> DefinitionDiff {
        self.state().difference.clone()
    }

    /// Warnings about the definition: invisible characters.
    pub(super) fn warnings(&self) -> Vec<String> {
        let places = self.state().invisible_places.clone();
        if places.is_empty() { Vec::new() } else { vec![describe_invisible(&places)] }
    }

    /// Why a tool must not be called, if its definition is not the accepted one.
    pub(super) fn tool_block_reason(&self, tool: &str) -> Option<String> {
        let state = self.state();
        if self.changes == DefinitionChangePolicy::Report {
            return None;
        }
        if let Some(store_error) =
            state.store_error.as_ref().filter(|_| self.changes == DefinitionChangePolicy::RequireAcceptance)
        {
            return Some(format!(
                "cannot check whether the definition of `{tool}` was accepted: {store_error}"
            ));
        }
        let shown = escape_line(tool);
        let problem = match &state.difference {
            difference if difference.changed.iter().any(|changed| changed.name == shown) => {
                // Both definitions must say read-only: a tool that says so only now may have written until now.
                let accepted = state.accepted.iter();
                if self.changes == DefinitionChangePolicy::RequireAcceptanceUnlessReadOnly
                    && accepted.chain([&state.seen]).all(|definition| is_read_only(definition, tool))
                {
                    return None;
                }
                format!("the definition of `{shown}` has changed since it was accepted")
            }
            difference if difference.added.iter().any(|added| *added == shown) => {
                format!("`{shown}` was added after its tools were accepted")
            }
            _ => return None,
        };
        Some(self.with_remedy(&problem))
    }

    /// Why a prompt must not be fetched, if it is not the one that was accepted.
    pub(super) fn prompt_block_reason(&self, prompt: &str) -> Option<String> {
        if self.changes != DefinitionChangePolicy::RequireAcceptance {
            return None;
        }
        let (state, shown) = (self.state(), escape_line(prompt));
        let other =
            state.difference.others.iter().find(|other| other.kind == PROMPT && other.name == shown)?;
        Some(self.with_remedy(&format!(
            "the prompt `{shown}` was {} since its prompts were accepted",
            other.change
        )))
    }

    fn with_remedy(&self, problem: &str) -> String {
        let name = &self.key.name;
        format!("{problem}; review it with `ctx upstream list`, accept it with `ctx upstream accept {name}`")
    }

    fn state(&self) -> MutexGuard<'_, PinState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_read_only(definition: &ServerDefinition, tool: &str) -> bool {
    let spec = definition.tools.iter().map(|tool| &tool.spec).find(|spec| spec.name == tool);
    spec.is_some_and(|spec| spec.annotations.read_only == Some(true))
}

fn describe_invisible(places: &[String]) -> String {
    format!("it uses invisible characters, which are shown escaped, in {}", places.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::definition::ToolDefinition;
    use super::super::settings::{ServerCommand, StartMode, Transport, UpstreamLimits};
    use super::*;
    use ctx_core::Identifier;
    use serde_json::json;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// A memory whose second `remember` waits.
    struct SlowMemory {
        accepted: Mutex<Option<String>>,
        count: Mutex<usize>,
        waits: Sender<()>,
        resume: Mutex<Receiver<()>>,
    }

    impl DefinitionStore for SlowMemory {
        fn load(&self, _: &ServerKey) -> Result<Option<StoredDefinitions>, DefinitionStoreError> {
            Ok(None)
        }

        fn record_seen(&self, _: &ServerKey, seen: &str) -> Result<StoredDefinitions, DefinitionStoreError> {
            let count = {
                let mut count = self.count.lock().unwrap();
                *count += 1;
                *count
            };
            if count == 2 {
                self.waits.send(()).unwrap();
                self.resume.lock().unwrap().recv().unwrap();
            }
            let accepted = self.accepted.lock().unwrap().get_or_insert_with(|| seen.to_owned()).clone();
            Ok(StoredDefinitions { seen: seen.to_owned(), accepted })
        }

        fn replace_accepted(
            &self,
            _: &ServerKey,
            _: &str,
            accepted: &str,
        ) -> Result<bool, DefinitionStoreError> {
            *self.accepted.lock().unwrap() = Some(accepted.to_owned());
            Ok(true)
        }
    }

    /// A memory whose user accepts what was seen just before new parts are added.
    #[derive(Default)]
    struct BusyMemory {
        stored: Mutex<Option<StoredDefinitions>>,
        has_accepted: Mutex<bool>,
    }

    impl DefinitionStore for BusyMemory {
        fn load(&self, _: &ServerKey) -> Result<Option<StoredDefinitions>, DefinitionStoreError> {
            Ok(self.stored.lock().unwrap().clone())
        }

        fn record_seen(&self, _: &ServerKey, seen: &str) -> Result<StoredDefinitions, DefinitionStoreError> {
            let mut stored = self.stored.lock().unwrap();
            let accepted = stored.take().map_or_else(|| seen.to_owned(), |stored| stored.accepted);
            Ok(stored.insert(StoredDefinitions { seen: seen.to_owned(), accepted }).clone())
        }

        fn replace_accepted(
            &self,
            _: &ServerKey,
            before: &str,
            accepted: &str,
        ) -> Result<bool, DefinitionStoreError> {
            let mut stored = self.stored.lock().unwrap();
            let stored = stored.as_mut().unwrap();
            if !std::mem::replace(&mut *self.has_accepted.lock().unwrap(), true) {
                stored.accepted = stored.seen.clone();
            }
            let is_unchanged = stored.accepted == before;
            if is_unchanged {
                stored.accepted = accepted.to_owned();
            }
            Ok(is_unchanged)
        }
    }

    fn echo(description: &str) -> ServerDefinition {
        let tool = json!({"name": "echo", "description": description, "inputSchema": {"type": "object"}});
        let tools = vec![ToolDefinition::of(serde_json::from_value(tool).unwrap())];
        ServerDefinition { tools, ..ServerDefinition::default() }
    }

    fn settings() -> UpstreamSettings {
        UpstreamSettings {
            name: Identifier::sanitize("up"),
            transport: Transport::Stdio(ServerCommand {
                program: "up".into(),
                arguments: Vec::new(),
                environment: Vec::new(),
                directory: "/".into(),
            }),
            start: StartMode::Eager,
            exposed: false,
            tools: ToolFilter::default(),
            changes: DefinitionChangePolicy::RequireAcceptance,
            limits: UpstreamLimits::default(),
        }
    }

    #[test]
    fn a_tool_is_in_memory_once_however_often_it_is_listed_and_stored() {
        let memory = Arc::new(BusyMemory::default());
        let start = || PinnedDefinitions::new(&settings(), Some(memory.clone()), Redactor::default());
        let first = start();
        let listed = echo("Echoes.");
        let spec = listed.visible_tools().remove(0);
        first.record(listed);
        first.record(echo("Echoes."));
        first.reload_accepted();
        let second = start();
        let loaded = second.load_tools().unwrap().remove(0);
        second.record(echo("Echoes."));
        for (definitions, spec) in [(first, spec), (second, loaded)] {
            let state = definitions.state();
            let all = [&state.seen, state.accepted.as_ref().unwrap()].map(|one| one.tools[0].spec.clone());
            all.iter().for_each(|other| assert!(Arc::ptr_eq(other, &spec)));
        }
    }

    #[test]
    fn a_definition_accepted_while_parts_are_added_stays_accepted() {
        let memory = Arc::new(BusyMemory::default());
        let key = ServerKey::of(&settings());
        memory.record_seen(&key, &serde_json::to_string(&echo("as accepted")).unwrap()).unwrap();
        let definitions = PinnedDefinitions::new(&settings(), Some(memory), Redactor::default());
        definitions.record(ServerDefinition { instructions: Some("new".to_owned()), ..echo("changed") });
        assert_eq!(definitions.tool_block_reason("echo"), None);
    }

    #[test]
    fn a_listing_of_resources_does_not_restore_old_tools() {
        let ((waits, waiting), (resume, resumed)) = (channel(), channel());
        let (accepted, count) = Default::default();
        let memory = SlowMemory { accepted, count, waits, resume: Mutex::new(resumed) };
        let definitions = PinnedDefinitions::new(&settings(), Some(Arc::new(memory)), Redactor::default());
        definitions.record(echo("as accepted"));
        std::thread::scope(|scope| {
            scope.spawn(|| definitions.record_features(ServerDefinition::default()));
            waiting.recv().unwrap();
            let (stored, is_stored) = channel();
            let definitions = &definitions;
            scope.spawn(move || {
                definitions.record(echo("changed"));
                stored.send(()).ok();
            });
            // It overtakes the listing of resources, or waits for it.
            is_stored.recv_timeout(Duration::from_millis(200)).ok();
            resume.send(()).unwrap();
        });
        let reason = definitions.tool_block_reason("echo").unwrap_or_default();
        assert!(reason.contains("has changed since it was accepted"), "{reason}");
    }
}
