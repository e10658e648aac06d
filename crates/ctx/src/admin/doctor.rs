//! `admin.doctor`: checks the configuration, store, index, embeddings, sources, scripts and upstreams, and
//! returns a finding with advice for each.
//!
//! It also reports on a workspace that cannot be opened, because its configuration or its store cannot be
//! used.

mod checks;

use super::{Operation, REWRITES_DERIVED_DATA};
use crate::config::Config;
use crate::error::{CommandError, Exit};
use crate::workspace::WeakWorkspaceFunctions;
use async_trait::async_trait;
use ctx_core::{Annotations, Call, ToolError};
use ctx_knowledge::Knowledge;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `admin.doctor`
pub(crate) enum CheckWorkspace {
    /// The workspace could not be opened.
    Broken(WorkspaceFault),
    Open(OpenWorkspace),
}

/// Why a workspace cannot be opened.
pub(crate) enum WorkspaceFault {
    /// The configuration is invalid.
    Configuration(CommandError),
    /// The configuration is valid, but the store cannot be opened.
    Store {
        /// The path of the configuration file.
        configuration: String,
        error: CommandError,
    },
}

/// The parts of a workspace that are checked.
pub(crate) struct OpenWorkspace {
    knowledge: Arc<Knowledge>,
    /// Problems of the configuration.
    warnings: Vec<String>,
    functions: WeakWorkspaceFunctions,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckWorkspaceRequest {}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Findings {
    pub(crate) findings: Vec<Finding>,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Finding {
    pub(crate) area: Area,
    /// The source or configuration section, if the finding concerns a single one.
    pub(crate) subject: Option<String>,
    pub(crate) verdict: Verdict,
    /// The result of the check, as a sentence.
    pub(crate) message: String,
    /// Steps that solve the problem, or remarks.
    pub(crate) advice: Vec<String>,
}

/// The part of a workspace that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Area {
    Configuration,
    Trust,
    Privacy,
    Store,
    KeywordIndex,
    Embeddings,
    Sources,
    Scripts,
    Upstreams,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Ok,
    /// It works, but there is something to look at.
    Warning,
    Problem,
}

impl Finding {
    fn new(area: Area, verdict: Verdict, message: impl Into<String>) -> Self {
        Self { area, subject: None, verdict, message: message.into(), advice: Vec::new() }
    }

    fn ok(area: Area, message: impl Into<String>) -> Self {
        Self::new(area, Verdict::Ok, message)
    }

    fn problem(area: Area, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { advice: vec![advice.into()], ..Self::new(area, Verdict::Problem, message) }
    }

    fn of_error(area: Area, error: CommandError) -> Self {
        Self { advice: error.hints, ..Self::new(area, Verdict::Problem, error.messages.join("; ")) }
    }

    /// Sets the source or section that the finding concerns.
    fn with_subject(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// Adds advice; any advice turns `Ok` into a warning.
    fn with_advice(mut self, advice: impl IntoIterator<Item = String>) -> Self {
        self.advice.extend(advice);
        if self.verdict == Verdict::Ok && !self.advice.is_empty() {
            self.verdict = Verdict::Warning;
        }
        self
    }

    /// The heading of the finding: its subject, else its area.
    pub(crate) fn title(&self) -> &str {
        self.subject.as_deref().unwrap_or(match self.area {
            Area::Configuration => "configuration",
            Area::Trust => "trust",
            Area::Privacy => "privacy",
            Area::Store => "store",
            Area::KeywordIndex => "keyword index",
            Area::Embeddings => "embeddings",
            Area::Sources => "sources",
            Area::Scripts => "scripts",
            Area::Upstreams => "upstreams",
        })
    }
}

impl WorkspaceFault {
    /// Classifies an error from opening a workspace: usage errors come from the configuration, all others
    /// from the store.
    pub(crate) fn of_open(configuration: String, error: CommandError) -> Self {
        match error.exit {
            Exit::Usage => {
                Self::Configuration(CommandError { messages: vec![error.messages.join("; ")], ..error })
            }
            _ => Self::Store { configuration, error },
        }
    }

    fn findings(&self) -> Vec<Finding> {
        match self {
            Self::Configuration(error) => {
                let finding = |message: &String| Finding {
                    advice: error.hints.clone(),
                    ..Finding::new(Area::Configuration, Verdict::Problem, message)
                };
                error.messages.iter().map(finding).collect()
            }
            Self::Store { configuration, error } => vec![
                Finding::ok(Area::Configuration, configuration),
                Finding {
                    advice: error.hints.clone(),
                    ..Finding::new(Area::Store, Verdict::Problem, error.messages.join("; "))
                },
            ],
        }
    }
}

/// The path of the configuration file for display.
pub(crate) fn configuration_file(config: &Config) -> String {
    let path = config.path.as_ref().map(|path| path.display().to_string());
    path.unwrap_or_else(|| "no file, defaults only".to_owned())
}

#[async_trait]
impl Operation for CheckWorkspace {
    const NAME: &'static str = "doctor";
    const DESCRIPTION: &'static str =
        "Check configuration, store, index, embeddings, sources, scripts and upstreams, and suggest fixes.";
    // Not read-only: a damaged index is rebuilt, and upstreams are connected.
    const ANNOTATIONS: Annotations = REWRITES_DERIVED_DATA;
    type Request = CheckWorkspaceRequest;
    type Response = Findings;

    async fn run(&self, _: CheckWorkspaceRequest, _: &Call) -> Result<Findings, ToolError> {
        let findings = match self {
            Self::Broken(fault) => fault.findings(),
            Self::Open(OpenWorkspace { knowledge, warnings, functions }) => {
                checks::run_all(&functions.upgrade()?, knowledge, warnings).await?
            }
        };
        Ok(Findings { findings })
    }
}

impl CheckWorkspace {
    pub(super) fn open(
        knowledge: Arc<Knowledge>,
        warnings: Vec<String>,
        functions: WeakWorkspaceFunctions,
    ) -> Self {
        Self::Open(OpenWorkspace { knowledge, warnings, functions })
    }
}
