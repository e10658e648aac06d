//! The checks of a workspace: one finding for each thing that was looked at, and what to do about it.
//!
//! It answers where there is no workspace, too: where the configuration cannot be read or the store cannot be opened.

mod checks;

use super::{Operation, RENEWS};
use crate::config::Config;
use crate::error::{CommandError, Exit};
use crate::workspace::WeakCallable;
use async_trait::async_trait;
use ctx_core::{Annotations, Call, ToolError};
use ctx_knowledge::Knowledge;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `admin.doctor`
pub(crate) enum CheckWorkspace {
    /// There is none to check.
    Broken(WorkspaceFault),
    Open(OpenWorkspace),
}

/// Why a workspace cannot be opened.
pub(crate) enum WorkspaceFault {
    /// Its configuration cannot be used.
    Configuration(CommandError),
    /// Its configuration is sound, and its store cannot be opened.
    Store {
        /// Where the configuration is.
        configuration: String,
        error: CommandError,
    },
}

/// The parts of a workspace that are checked.
pub(crate) struct OpenWorkspace {
    knowledge: Arc<Knowledge>,
    /// Problems of the configuration.
    warnings: Vec<String>,
    callable: WeakCallable,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckWorkspaceRequest {}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Findings {
    pub(crate) findings: Vec<Finding>,
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Finding {
    pub(crate) area: Area,
    /// The source or the section of the configuration, where it is about one of the area's.
    pub(crate) subject: Option<String>,
    pub(crate) verdict: Verdict,
    /// How it is.
    pub(crate) message: String,
    /// What to do, or what to know about it.
    pub(crate) advice: Vec<String>,
}

/// Which part of a workspace was checked.
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

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Ok,
    /// It works, and there is something to look at.
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

    /// Of a source or a section.
    fn about(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// With something to look at, where there is anything.
    fn warned(mut self, advice: impl IntoIterator<Item = String>) -> Self {
        self.advice.extend(advice);
        if self.verdict == Verdict::Ok && !self.advice.is_empty() {
            self.verdict = Verdict::Warning;
        }
        self
    }

    /// What it is about: its subject, else its area.
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
    /// Why a workspace of this configuration could not be opened.
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

/// Where a configuration is, for people.
pub(crate) fn configuration_file(config: &Config) -> String {
    let path = config.path.as_ref().map(|path| path.display().to_string());
    path.unwrap_or_else(|| "no file, defaults only".to_owned())
}

#[async_trait]
impl Operation for CheckWorkspace {
    const NAME: &'static str = "doctor";
    const DESCRIPTION: &'static str = "Check configuration, store, index, embeddings, sources, scripts and upstream servers, and say what to do.";
    // A damaged index is rebuilt, and upstreams are connected.
    const ANNOTATIONS: Annotations = RENEWS;
    type Request = CheckWorkspaceRequest;
    type Answer = Findings;

    async fn answer(&self, _: CheckWorkspaceRequest, _: &Call) -> Result<Findings, ToolError> {
        let findings = match self {
            Self::Broken(fault) => fault.findings(),
            Self::Open(OpenWorkspace { knowledge, warnings, callable }) => {
                checks::all(&callable.upgrade()?, knowledge, warnings).await?
            }
        };
        Ok(Findings { findings })
    }
}

impl CheckWorkspace {
    pub(super) fn open(knowledge: Arc<Knowledge>, warnings: Vec<String>, callable: WeakCallable) -> Self {
        Self::Open(OpenWorkspace { knowledge, warnings, callable })
    }
}
