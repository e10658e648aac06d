//! The sources of a workspace: those of its configuration, those of scripts, and those that the program adds.

use super::state_path;
use crate::config::{Config, ConnectorSection, NamedSection, SourceSettings, SyncInterval, TrustRequest};
use crate::definitions;
use crate::harness::AddedSource;
use crate::masks::MaskedConnector;
use crate::scripts::{self, ScriptRunner, ScriptSource, UntrustedSource};
use ctx_core::{Connector, SourceName};
use ctx_knowledge::{KINDS, OpenOptions, Source, cache_path, store_files};
use ctx_luau::ScriptSettings;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How a server keeps a source up to date.
#[derive(Clone)]
pub(crate) struct SourceFreshness {
    pub(crate) name: SourceName,
    /// The sync interval.
    pub(crate) every: Option<SyncInterval>,
    /// Whether the source is watched and synced after changes.
    pub(crate) watch: bool,
}

impl SourceFreshness {
    /// The section that configures the source; a source that the program adds has none.
    pub(crate) fn section(&self) -> String {
        format!("connectors.{}", self.name.to_string().replacen(':', ".", 1))
    }
}

/// The time until the next scheduled sync. A `last_sync` in the future comes from a wrong clock; the source
/// is then due at once.
pub(crate) fn time_until_due(every: Duration, last_sync: Option<Timestamp>, now: Timestamp) -> Duration {
    let passed = last_sync.and_then(|at| Duration::try_from(now.duration_since(at)).ok());
    passed.map_or(Duration::ZERO, |passed| every.saturating_sub(passed))
}

/// All sources, and the freshness of those that may be synced.
pub(super) fn gather(
    config: &Config,
    runner: &Arc<ScriptRunner>,
    added: &[AddedSource],
    warnings: &mut Vec<String>,
) -> (Vec<Source>, Vec<SourceFreshness>) {
    let trusted = configured_sources(config, warnings).into_iter().chain(script_sources(config, runner));
    let (mut sources, mut freshness): (Vec<_>, Vec<_>) = trusted.unzip();
    let untrusted = untrusted_sources(config);
    let is_new = |source: &Source| !freshness.iter().any(|known: &SourceFreshness| known.name == source.name);
    sources.extend(untrusted.into_iter().filter(is_new));
    for (source, freshness_of_source) in added_sources(added, warnings) {
        sources.push(source);
        freshness.push(freshness_of_source);
    }
    for source in &mut sources {
        let (connector, redactor) = (source.connector.clone(), config.redactor.clone());
        source.connector = Arc::new(MaskedConnector { connector, redactor });
    }
    (sources, freshness)
}

/// The sources with built-in connectors; one with invalid settings is dropped with a warning.
fn configured_sources(config: &Config, warnings: &mut Vec<String>) -> Vec<(Source, SourceFreshness)> {
    let mut own_files = store_files(config.store_path());
    // Without a home folder, the data folder is the store's folder, which may be the workspace itself.
    own_files.extend(Some(config.data_folder().to_owned()).filter(|folder| !config.root.starts_with(folder)));
    own_files.extend([state_path(config), definitions::path(config)]);
    // Not indexed: the configuration may hold secrets, and scripts are not documents.
    own_files.extend(config.path.clone());
    let is_script =
        |section: &str| ["tools.", "agents.", "connectors."].iter().any(|group| section.starts_with(group));
    let scripts = config.trust_requests.iter().filter(|request| is_script(&request.section));
    own_files.extend(scripts.flat_map(|request| request.files.iter().cloned()));
    let mut sources = Vec::new();
    for (kind_name, named) in &config.settings.connectors {
        let Some(kind) = KINDS.iter().find(|kind| kind.name == kind_name) else { continue };
        for (name, settings) in named {
            let settings = Value::Object(settings.clone());
            // Cannot fail: the section was checked when the configuration was loaded.
            let Ok(common) = SourceSettings::deserialize(&settings) else { continue };
            let section = format!("connectors.{kind_name}.{name}");
            let position = config.message_prefix(&["connectors", kind_name, name]);
            let name = SourceName::new(kind_name, name);
            let options = OpenOptions {
                workspace_root: &config.root,
                cache: &cache_path(&config.cache_base(), &name),
                environment: &|variable| std::env::var(variable).ok(),
                document_bytes_max: config.settings.limits.document_bytes.get(),
                own_files: &own_files,
            };
            match (kind.open)(&settings, options) {
                Ok(connector) => {
                    let freshness =
                        SourceFreshness { name: name.clone(), every: common.every, watch: common.watch };
                    sources.push((Source { name, connector, tags: common.tags }, freshness));
                }
                Err(problem) => warnings.push(format!("{position}[{section}] is left out: {problem}")),
            }
        }
    }
    sources
}

/// The sources whose connectors are scripts.
fn script_sources(config: &Config, runner: &Arc<ScriptRunner>) -> Vec<(Source, SourceFreshness)> {
    let source = |(section, common): (NamedSection<ConnectorSection>, SourceSettings)| {
        let name = SourceName::new("script", &section.name);
        let freshness = SourceFreshness { name: name.clone(), every: common.every, watch: false };
        let guard = config.guard(&format!("connectors.script.{}", section.name));
        let settings = connector_settings(config, section);
        let connector: Arc<dyn Connector> = Arc::new(ScriptSource::new(runner.clone(), settings, guard));
        (Source { name, connector, tags: common.tags }, freshness)
    };
    config.settings.script_connectors().into_iter().map(source).collect()
}

/// Placeholders for the untrusted sources. They are listed, with the reason, so that their documents are not taken for
/// those of a removed source; they are never synced.
fn untrusted_sources(config: &Config) -> Vec<Source> {
    let source = |request: &TrustRequest| {
        let (kind, name) = request.section.strip_prefix("connectors.")?.split_once('.')?;
        let known = kind == "script" || KINDS.iter().any(|known| known.name == kind);
        let connector: Arc<dyn Connector> = Arc::new(UntrustedSource);
        known.then(|| Source { name: SourceName::new(kind, name), connector, tags: Vec::new() })
    };
    config.untrusted.iter().filter_map(source).collect()
}

/// The sources that the program adds. A second source of the same name is dropped with a warning.
fn added_sources(added: &[AddedSource], warnings: &mut Vec<String>) -> Vec<(Source, SourceFreshness)> {
    let mut sources: Vec<(Source, SourceFreshness)> = Vec::new();
    for AddedSource { name, connector, options } in added {
        if sources.iter().any(|(source, _)| source.name == *name) {
            warnings.push(format!("a source is left out: the name `{name}` is taken"));
            continue;
        }
        let every = options.every.map(SyncInterval::try_from).transpose().unwrap_or_else(|problem| {
            warnings.push(format!("{name} is not synced on schedule: {problem}"));
            None
        });
        let source = Source { name: name.clone(), connector: connector.clone(), tags: options.tags.clone() };
        sources.push((source, SourceFreshness { name: name.clone(), every, watch: true }));
    }
    sources
}

/// The settings of a connector's script from its section.
pub(crate) fn connector_settings(config: &Config, section: NamedSection<ConnectorSection>) -> ScriptSettings {
    let options = section.settings;
    ScriptSettings {
        timeout: options.timeout(),
        allow_hosts: options.allow_hosts.clone(),
        ..scripts::script_settings(config, section.name, &options.path, section.config)
    }
}
