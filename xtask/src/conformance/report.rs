//! Reads the results of the suite: a `checks.json` for each scenario, in a folder named for scenario and
//! time.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fmt;
use std::fs;
use std::path::Path;

/// Length of the timestamp at the end of a folder's name: `-2026-07-28T09-41-30-123Z`.
const TIMESTAMP_LENGTH: usize = 25;
/// Maximum characters of a check's message that are shown; some contain whole protocol messages.
const MESSAGE_CHARS_MAX: usize = 600;

/// The side of the protocol that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TestedRole {
    Server,
    Client,
}

impl TestedRole {
    /// The suite's name of the side.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }

    /// The prefix of the names of scenario folders.
    fn prefix(self) -> &'static str {
        match self {
            Self::Server => "server-",
            Self::Client => "",
        }
    }
}

/// The required scenarios of a revision, and the others that were run.
#[derive(Debug)]
pub(super) struct Report {
    required: Vec<Scenario>,
    others: Vec<Scenario>,
}

/// The result of one scenario.
#[derive(Debug)]
struct Scenario {
    name: String,
    passed: usize,
    skipped: usize,
    failures: Vec<String>,
    warnings: Vec<String>,
}

impl Report {
    /// Reads the results in `folder`. A required scenario without results counts as failed.
    pub(super) fn read(required: &[String], role: TestedRole, folder: &Path) -> Result<Self> {
        let mut scenarios = Vec::new();
        for directory in directories(folder)? {
            let Some(name) = scenario_of(&directory, role) else { continue };
            // The file is missing if the scenario was aborted.
            let text = fs::read_to_string(folder.join(&directory).join("checks.json"));
            let text = text.unwrap_or_else(|_| "[]".to_owned());
            let checks = serde_json::from_str(&text).with_context(|| directory.clone())?;
            scenarios.push(Scenario::of(name, &checks));
        }
        scenarios.sort_by(|one, other| one.name.cmp(&other.name));
        let mut take = |name: &String| match scenarios.iter().position(|scenario| scenario.name == *name) {
            Some(position) => scenarios.remove(position),
            None => Scenario::of(name, &Value::Null),
        };
        let required = required.iter().map(&mut take).collect();
        Ok(Self { required, others: scenarios })
    }

    /// Number of required scenarios that did not pass without a warning.
    pub(super) fn failed(&self) -> usize {
        self.required.iter().filter(|scenario| !scenario.has_passed()).count()
    }
}

impl Scenario {
    fn of(name: &str, checks: &Value) -> Self {
        let mut scenario =
            Self { name: name.to_owned(), passed: 0, skipped: 0, failures: Vec::new(), warnings: Vec::new() };
        for check in checks.as_array().into_iter().flatten() {
            match check["status"].as_str() {
                Some("SUCCESS") => scenario.passed += 1,
                Some("WARNING") => scenario.warnings.push(check_message(check)),
                Some("SKIPPED") => scenario.skipped += 1,
                Some("INFO") => {}
                _ => scenario.failures.push(check_message(check)),
            }
        }
        if scenario.passed == 0 && scenario.failures.is_empty() {
            scenario.failures.push("nothing was checked".to_owned());
        }
        scenario
    }

    fn has_passed(&self) -> bool {
        self.failures.is_empty() && self.warnings.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(formatter, "required", &self.required)?;
        write_table(formatter, "not required", &self.others)?;
        let passed: usize = self.required.iter().map(|scenario| scenario.passed).sum();
        let passed_count = self.required.len() - self.failed();
        writeln!(formatter, "  {passed_count} of {} required scenarios, {passed} checks", self.required.len())
    }
}

fn write_table(formatter: &mut fmt::Formatter<'_>, title: &str, scenarios: &[Scenario]) -> fmt::Result {
    writeln!(formatter, "  {title:<50} passed failed warnings skipped")?;
    for scenario in scenarios {
        let Scenario { name, passed, skipped, failures, warnings } = scenario;
        let (failed, warned) = (failures.len(), warnings.len());
        writeln!(formatter, "  {name:<50} {passed:>6} {failed:>6} {warned:>8} {skipped:>7}")?;
        for failure in failures {
            writeln!(formatter, "      failed: {failure}")?;
        }
        for warning in warnings {
            writeln!(formatter, "      warning: {warning}")?;
        }
    }
    Ok(())
}

/// The ID and message of a check.
fn check_message(check: &Value) -> String {
    let text = |field: &str| check[field].as_str().unwrap_or_default();
    let message = if text("errorMessage").is_empty() { text("description") } else { text("errorMessage") };
    let shown: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
    let more = if shown.len() < message.len() { "…" } else { "" };
    format!("{}: {shown}{more}", text("id"))
}

/// The folders of scenarios, including those inside group folders: `auth/metadata-default-…`.
fn directories(folder: &Path) -> Result<Vec<String>> {
    let mut directories = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() && !ends_with_timestamp(&name) {
            let inner = directories_in(&entry.path())?;
            directories.extend(inner.into_iter().map(|inner| format!("{name}/{inner}")));
        } else {
            directories.push(name);
        }
    }
    Ok(directories)
}

fn directories_in(folder: &Path) -> Result<Vec<String>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn ends_with_timestamp(directory: &str) -> bool {
    let start = directory.len().checked_sub(TIMESTAMP_LENGTH);
    start.and_then(|start| directory.get(start..)).is_some_and(|end| {
        end.starts_with("-2") && end.ends_with('Z') && end.chars().filter(|part| *part == '-').count() == 6
    })
}

/// The scenario of a folder.
fn scenario_of(directory: &str, role: TestedRole) -> Option<&str> {
    let end = directory.len().checked_sub(TIMESTAMP_LENGTH).filter(|_| ends_with_timestamp(directory))?;
    directory.get(..end)?.strip_prefix(role.prefix())
}

/// The required scenarios of one side, from a requirements file.
pub(super) fn required_scenarios(role: TestedRole, requirements: &str) -> Vec<String> {
    let title = format!("{}:", role.name());
    let lines = requirements.lines().skip_while(|line| line.trim_end() != title).skip(1);
    let items = lines.take_while(|line| line.is_empty() || line.starts_with(' '));
    items.filter_map(|line| line.trim().strip_prefix("- ").map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(required: &[&str], folders: &[(&str, Value)]) -> Report {
        let folder = tempfile::tempdir().unwrap();
        for (name, checks) in folders {
            let path = folder.path().join(format!("server-{name}-2026-07-28T09-41-30-123Z"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("checks.json"), checks.to_string()).unwrap();
        }
        fs::write(folder.path().join("suite.log"), "").unwrap();
        let required: Vec<String> = required.iter().map(|name| (*name).to_owned()).collect();
        Report::read(&required, TestedRole::Server, folder.path()).unwrap()
    }

    fn check(status: &str) -> Value {
        json!({ "id": "check", "status": status, "errorMessage": "no answer" })
    }

    #[test]
    fn a_required_scenario_must_pass_without_a_warning() {
        let checks = json!([check("SUCCESS"), check("INFO"), check("SKIPPED")]);
        assert_eq!(report(&["ping"], &[("ping", checks)]).failed(), 0);
        for status in ["FAILURE", "WARNING", "SOMETHING_NEW"] {
            let checks = json!([check("SUCCESS"), check(status)]);
            let report = report(&["ping"], &[("ping", checks)]);
            assert_eq!(report.failed(), 1);
            assert!(report.to_string().contains("check: no answer"), "{report}");
        }
    }

    #[test]
    fn a_required_scenario_without_results_has_failed() {
        assert_eq!(report(&["ping"], &[]).failed(), 1);
        assert_eq!(report(&["ping"], &[("ping", json!([]))]).failed(), 1);
    }

    #[test]
    fn an_optional_scenario_is_reported_but_does_not_fail() {
        let report = report(
            &["ping"],
            &[("ping", json!([check("SUCCESS")])), ("tasks-lifecycle", json!([check("FAILURE")]))],
        );
        assert_eq!(report.failed(), 0);
        assert!(report.to_string().contains("tasks-lifecycle"), "{report}");
    }

    #[test]
    fn scenarios_of_a_group_are_found_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["initialize", "auth/basic"] {
            let path = folder.path().join(format!("{name}-2026-07-28T09-41-30-123Z"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("checks.json"), json!([check("SUCCESS")]).to_string()).unwrap();
        }
        let required = ["auth/basic".to_owned(), "initialize".to_owned()];
        assert_eq!(Report::read(&required, TestedRole::Client, folder.path()).unwrap().failed(), 0);
    }

    #[test]
    fn a_list_of_requirements_ends_where_the_next_begins() {
        let text = "# server: not this\nserver:\n  - ping\n  - tools-list\n\nclient:\n  - initialize\n";
        assert_eq!(required_scenarios(TestedRole::Server, text), ["ping", "tools-list"]);
        assert_eq!(required_scenarios(TestedRole::Client, text), ["initialize"]);
    }
}
