//! Building catalogs: registers the tools of all providers under their names, with their schemas and rate limits.

use super::awaited_provider::AwaitedProvider;
use super::{Catalog, CatalogEntry, RegisteredAgent, RegisteredTool, has_hidden_tools};
use crate::agent::{self, AgentProvider};
use crate::rate::Meters;
use crate::resource::{self, ResourceProvider};
use crate::{Agent, AllowAll, Identifier, Limits, NoRunLog, Policy, Provider, Redactor, RunLog, ToolName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

/// Collects the parts of a [`Catalog`].
pub struct CatalogBuilder {
    providers: Vec<Arc<dyn Provider>>,
    limits: Limits,
    policy: Arc<dyn Policy>,
    runs: Arc<dyn RunLog>,
    redactor: Redactor,
    pub(super) left_out: BTreeMap<Identifier, String>,
    previous: BTreeMap<String, Arc<RegisteredTool>>,
    meters: Arc<Meters>,
}

impl Catalog {
    /// Starts building a catalog.
    pub fn builder() -> CatalogBuilder {
        CatalogBuilder {
            providers: Vec::new(),
            limits: Limits::default(),
            policy: Arc::new(AllowAll),
            runs: Arc::new(NoRunLog),
            redactor: Redactor::default(),
            left_out: BTreeMap::new(),
            previous: BTreeMap::new(),
            meters: Arc::default(),
        }
    }
}

impl CatalogBuilder {
    /// Adds a provider's tools.
    #[must_use]
    pub fn provider(mut self, provider: Arc<dyn Provider>) -> Self {
        self.providers.push(provider);
        self
    }

    /// Sets the limits of calls.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the policy that decides which caller may call which tool.
    #[must_use]
    pub fn policy(self, policy: Arc<dyn Policy>) -> Self {
        Self { policy, ..self }
    }

    /// Sets the run log.
    #[must_use]
    pub fn runs(self, runs: Arc<dyn RunLog>) -> Self {
        Self { runs, ..self }
    }

    /// Sets the redactor that masks secrets in runs and errors.
    #[must_use]
    pub fn redactor(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    /// Takes over state of the catalog that this one replaces: the counts of rate limits, and the compiled schemas of
    /// unchanged tools.
    #[must_use]
    pub fn replacing(self, previous: &Catalog) -> Self {
        let mut tools = previous.tools.clone();
        tools.extend(previous.hidden.iter().map(|(name, registered)| (name.clone(), registered.clone())));
        for registered in previous.unknown.values().flat_map(|awaited| awaited.registered_tools()) {
            tools.entry(registered.entry.name.to_string()).or_insert_with(|| registered.clone());
        }
        Self { previous: tools, meters: previous.meters.clone(), ..self }
    }

    /// Builds the catalog. A tool that cannot be registered is left out with a warning and does not affect the others.
    pub fn build(self) -> Arc<Catalog> {
        let mut catalog = Catalog {
            tools: BTreeMap::new(),
            hidden: BTreeMap::new(),
            outward: BTreeMap::new(),
            providers: BTreeSet::new(),
            unknown: BTreeMap::new(),
            left_out: self.left_out,
            agents: BTreeMap::new(),
            resources: Vec::new(),
            keeper: self.providers.iter().find_map(|provider| provider.file_store()),
            limits: self.limits,
            policy: self.policy,
            runs: self.runs,
            redactor: self.redactor,
            meters: self.meters,
            warnings: Vec::new(),
            schema_faults: OnceLock::new(),
        };
        let mut agents: Vec<Arc<dyn Agent>> = Vec::new();
        let mut agent_names = BTreeSet::new();
        for provider in &self.providers {
            if let Some(origin) = provider.resources() {
                let is_taken = catalog.resources.iter().any(|other| {
                    let (one, another) = (origin.prefix(), other.prefix());
                    let alike = resource::tool_name(one) == resource::tool_name(another);
                    alike || one.starts_with(another) || another.starts_with(one)
                });
                match is_taken {
                    true => catalog.warnings.push(format!(
                        "resources of {} are left out: the URI prefix {} is taken",
                        provider.name(),
                        origin.prefix()
                    )),
                    false => catalog.resources.push(origin),
                }
            }
            for agent in provider.agents() {
                let name = agent.spec().name.clone();
                match agent_names.insert(agent::tool_name(&name)) {
                    true => agents.push(agent),
                    false => {
                        catalog.warnings.push(format!("an agent is left out: the name `{name}` is taken"))
                    }
                }
            }
        }
        let registered =
            |agent: &Arc<dyn Agent>| RegisteredAgent { spec: agent.spec(), agent: agent.clone() };
        catalog.agents = agents
            .iter()
            .map(registered)
            .map(|registered| (registered.spec.name.clone(), registered))
            .collect();
        // Registered first, so that no provider's tool takes their names.
        let previous = self.previous;
        catalog.register(&AgentProvider(agents), &previous);
        catalog.register(&ResourceProvider(catalog.resources.clone()), &previous);
        for provider in &self.providers {
            if has_hidden_tools(&provider.name()) {
                catalog.register_hidden(&**provider, &previous);
                continue;
            }
            catalog.register(&**provider, &previous);
            if provider.unknown_reason().is_some() {
                catalog.providers.insert(provider.name());
                let awaited = AwaitedProvider::new(provider.clone());
                catalog.unknown.insert(provider.name(), Arc::new(awaited));
            }
        }
        drop(previous);
        catalog.meters.prune();
        Arc::new(catalog)
    }
}

impl Catalog {
    fn register(&mut self, provider: &dyn Provider, previous: &BTreeMap<String, Arc<RegisteredTool>>) {
        for registered in registrations(provider, previous, &self.meters) {
            self.insert(registered);
        }
    }

    /// Registers tools that only administrative calls may run. Their schemas are compiled on the first call.
    fn register_hidden(&mut self, provider: &dyn Provider, previous: &BTreeMap<String, Arc<RegisteredTool>>) {
        for registered in registrations(provider, previous, &self.meters) {
            self.hidden.entry(registered.entry.name.to_string()).or_insert(registered);
        }
    }

    /// Registers a tool under its full and outward name, or leaves it out with a warning.
    pub(super) fn insert(&mut self, registered: Arc<RegisteredTool>) {
        let CatalogEntry { name, spec, exposed, .. } = &registered.entry;
        if name.tool() != &Identifier::sanitize(&spec.name) {
            let (provider, written) = (name.provider(), &spec.name);
            self.warnings.push(format!(
                "two tools of {provider} have the same name; `{written}` is renamed to {name}"
            ));
        }
        let (full, outward) = (name.to_string(), name.outward());
        if self.is_taken(&registered.entry) {
            self.warnings.push(format!("{name} is left out: the name `{outward}` is taken"));
            return;
        }
        // Any other schema is compiled on the first call.
        if spec.input_schema.is_value() {
            self.warnings.extend(registered.argument_schema.fault(&registered.entry).map(str::to_owned));
        }
        self.providers.insert(name.provider().clone());
        // A tool that clients do not see never takes the outward name of one that they see.
        if *exposed || self.find_by_outward_name(&outward).is_none() {
            self.outward.insert(outward, full.clone());
        }
        self.tools.insert(full, registered);
    }

    /// Whether another tool has this tool's full name, or its outward name if clients see both.
    pub(super) fn is_taken(&self, entry: &CatalogEntry) -> bool {
        let other = self.find_by_outward_name(&entry.name.outward());
        let is_seen = |other: &Arc<RegisteredTool>| other.entry.exposed;
        self.tools.contains_key(&entry.name.to_string()) || (other.is_some_and(is_seen) && entry.exposed)
    }

    /// The tool with this outward name.
    fn find_by_outward_name(&self, outward: &str) -> Option<&Arc<RegisteredTool>> {
        self.outward.get(outward).and_then(|full| self.tools.get(full))
    }
}

/// A provider's current tools, with the compiled schemas and observations of unchanged ones.
pub(super) fn registrations(
    provider: &dyn Provider,
    previous: &BTreeMap<String, Arc<RegisteredTool>>,
    meters: &Meters,
) -> Vec<Arc<RegisteredTool>> {
    let tools: Vec<_> = provider.tools().into_iter().map(|tool| (tool.spec(), tool)).collect();
    let names = Identifier::sanitize_all(tools.iter().map(|(spec, _)| spec.name.as_str()));
    let registered = tools.into_iter().zip(names).map(|((spec, tool), identifier)| {
        let name = ToolName::new(provider.name(), identifier);
        let full = name.to_string();
        let is_same = |previous: &&Arc<RegisteredTool>| Arc::ptr_eq(&previous.entry.spec, &spec);
        let previous = previous
            .get(&full)
            .filter(is_same)
            .map(|previous| (previous.argument_schema.clone(), previous.observations.clone()));
        let (argument_schema, observations) = previous.unwrap_or_default();
        let meter = tool.rate_limit().map(|limit| meters.of(&full, limit));
        let entry = CatalogEntry { name, spec, builtin: provider.builtin(), exposed: provider.exposed() };
        Arc::new(RegisteredTool { entry, tool, argument_schema, observations, meter })
    });
    registered.collect()
}
