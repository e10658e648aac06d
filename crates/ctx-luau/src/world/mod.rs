//! The host APIs in the parent process: handles the host requests of scripts, with the permissions of each
//! script.

mod call;
mod client_request;
mod fs;
mod hosts;
mod http;

pub(crate) use hosts::AllowedHosts;
pub(crate) use http::ScriptHttp;

use crate::engine::{HostError, HostHandler};
use crate::kinds::{Emitter, Script, tracing_level};
use crate::vm::LogLevel;
use async_trait::async_trait;
use ctx_core::{Call, Progress, Redactor, Secret};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Error code of an invalid host request.
const BAD_REQUEST: &str = "bad_request";
/// Error code of a host request that this script may not make.
const FORBIDDEN: &str = "forbidden";

/// The response to a host request: a JSON value, and raw bytes.
type HostResult = Result<(Value, Vec<u8>), HostError>;

/// Handles the host requests of one run of a script.
pub(crate) struct ScriptWorld<'a> {
    script: &'a Script,
    origin: RunOrigin<'a>,
    redactor: Redactor,
    requests: AtomicU32,
}

/// The origin of a run: a call, or the sync of a source.
#[derive(Clone, Copy)]
enum RunOrigin<'a> {
    Call(&'a Call),
    Sync(&'a Emitter<'a>),
}

impl<'a> ScriptWorld<'a> {
    /// For a script that runs within a call.
    pub(crate) fn for_call(script: &'a Script, call: &'a Call) -> Self {
        let redactor = call.catalog().redactor().clone();
        Self { script, origin: RunOrigin::Call(call), redactor, requests: AtomicU32::new(0) }
    }

    /// For a connector, which runs within a sync.
    pub(crate) fn for_sync(script: &'a Script, emitter: &'a Emitter<'a>) -> Self {
        let redactor = emitter.redactor.clone();
        Self { script, origin: RunOrigin::Sync(emitter), redactor, requests: AtomicU32::new(0) }
    }

    fn require_call(&self, function: &str) -> Result<&'a Call, HostError> {
        match self.origin {
            RunOrigin::Call(call) => Ok(call),
            RunOrigin::Sync(_) => {
                Err(HostError::new(FORBIDDEN, format!("{function} is not available in connectors")))
            }
        }
    }

    fn env_get(&self, arguments: &Map<String, Value>) -> HostResult {
        let name = text(arguments, "name")?;
        // A text that cannot be the name of a variable is not passed on to functions of the operating system.
        let is_name = !name.is_empty() && !name.contains(['=', '\0']);
        let value = if is_name { (self.script.runtime.environment)(name) } else { None };
        if let Some(value) = &value {
            self.redactor.learn(&Secret::new(value));
        }
        Ok((json!(value), Vec::new()))
    }

    async fn sleep(arguments: &Map<String, Value>) -> HostResult {
        let seconds = arguments.get("seconds").and_then(Value::as_f64).unwrap_or(f64::NAN);
        let duration = Duration::try_from_secs_f64(seconds)
            .map_err(|_| HostError::new(BAD_REQUEST, "sleep: expected a number of seconds, 0 or more"))?;
        // The run's deadline cancels the sleep.
        tokio::time::sleep(duration).await;
        Ok(no_content())
    }

    fn progress(&self, arguments: &Map<String, Value>) -> HostResult {
        let number = |field: &str| match arguments.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| {
                HostError::new(BAD_REQUEST, format!("context.progress: `{field}` must be a number"))
            }),
        };
        let done = number("done")?
            .ok_or_else(|| HostError::new(BAD_REQUEST, "context.progress: `done` is missing"))?;
        let message = arguments.get("message").and_then(Value::as_str);
        let message = message.map(|message| self.redactor.text(message.to_owned()));
        let total = number("total")?;
        self.require_call("context.progress")?.peer().progress(Progress { done, total, message });
        Ok(no_content())
    }

    async fn http(&self, arguments: &Map<String, Value>, body: Vec<u8>) -> HostResult {
        let request_number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let limits = &self.script.runtime.limits;
        let (requests_max, subject) = match self.origin {
            RunOrigin::Sync(_) => (limits.connector_requests, "a scan"),
            RunOrigin::Call(_) => (limits.http_requests, "one run of a script"),
        };
        if request_number > requests_max {
            return Err(HostError::new(
                FORBIDDEN,
                format!("{subject} may make at most {requests_max} requests"),
            ));
        }
        let request = http::HttpRequest::new(arguments, body)?;
        let runtime = &self.script.runtime;
        runtime.http.send(request, &self.script.allowed_hosts, &runtime.limits).await
    }
}

#[async_trait]
impl HostHandler for ScriptWorld<'_> {
    async fn handle(&self, method: &str, arguments: Value, bytes: Vec<u8>) -> HostResult {
        let arguments = match (method, self.origin) {
            // An item can be any value; the emitter validates it.
            ("emit", RunOrigin::Sync(emitter)) => {
                return emitter.emit(arguments).await.map(|()| no_content());
            }
            _ => arguments,
        };
        let arguments = match arguments {
            Value::Object(fields) => fields,
            _ => return Err(HostError::new(BAD_REQUEST, format!("{method}: expected a table"))),
        };
        // A script sent to `execute` may not use these, even if its worker sends such a request.
        let is_configured = self.script.settings.is_some();
        match method {
            "call" => call::call(self.require_call("calling tools")?, &arguments).await,
            "sleep" => Self::sleep(&arguments).await,
            "progress" => self.progress(&arguments),
            "ask" => client_request::send(|name| self.require_call(name), &arguments).await,
            "http.request" if is_configured => self.http(&arguments, bytes).await,
            "env.get" if is_configured => self.env_get(&arguments),
            "fs.read" if is_configured => {
                let bytes_max = self.script.runtime.limits.http_response_bytes;
                fs::read(self.script.directory.clone(), text(&arguments, "path")?.to_owned(), bytes_max).await
            }
            "fs.list" if is_configured => {
                let glob = arguments.get("glob").and_then(Value::as_str).map(str::to_owned);
                fs::list(self.script.directory.clone(), text(&arguments, "dir")?.to_owned(), glob).await
            }
            other => Err(HostError::new(FORBIDDEN, format!("{other} is not available here"))),
        }
    }

    fn log(&self, level: LogLevel, message: &str) {
        let (script, message) = (self.script.name(), self.redactor.text(message.to_owned()));
        match level {
            LogLevel::Debug => tracing::debug!(target: "script", script, "{message}"),
            LogLevel::Info => tracing::info!(target: "script", script, "{message}"),
            LogLevel::Warn => tracing::warn!(target: "script", script, "{message}"),
            LogLevel::Error => tracing::error!(target: "script", script, "{message}"),
        }
        match self.origin {
            RunOrigin::Call(call) => call.peer().log(tracing_level(level), &message),
            RunOrigin::Sync(emitter) => emitter.note_log_level(level),
        }
    }
}

/// Refuses all host requests: for scripts that are only loaded to read their definition.
pub(crate) struct DeniedWorld;

#[async_trait]
impl HostHandler for DeniedWorld {
    async fn handle(&self, method: &str, _: Value, _: Vec<u8>) -> HostResult {
        Err(HostError::new(FORBIDDEN, format!("{method} is not available while the script is loaded")))
    }
}

fn no_content() -> (Value, Vec<u8>) {
    (Value::Null, Vec::new())
}

fn text<'a>(arguments: &'a Map<String, Value>, field: &str) -> Result<&'a str, HostError> {
    let value = arguments.get(field).and_then(Value::as_str);
    value.ok_or_else(|| HostError::new(BAD_REQUEST, format!("`{field}` must be a string")))
}
