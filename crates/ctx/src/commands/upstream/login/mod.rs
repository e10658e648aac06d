//! `ctx upstream login` and `logout`: the OAuth sign-in to an MCP server, in a browser.

mod browser;
mod redirect;

use crate::cli::GlobalOptions;
use crate::error::{CommandError, CommandResult};
use crate::logins;
use crate::output::count;
use crate::signals::Signals;
use crate::workspace::Workspace;
use ctx_core::Identifier;
use ctx_mcp::{LoginError, forget_login};
use redirect::RedirectListener;
use serde_json::json;
use std::time::Duration;

/// Time for the user to sign in.
const LOGIN_MAX: Duration = Duration::from_secs(300);

/// Signs in to a server, and connects to it with the new token as a check.
pub(super) async fn login(
    workspace: &Workspace,
    name: &Identifier,
    section: &str,
    open_browser: bool,
    global: &GlobalOptions,
) -> CommandResult {
    let output = global.output();
    // The server's 401 response, which this connection provokes, names the authorization server.
    let upstreams = &workspace.connect_some_upstreams(&|configured| configured == section).await.servers;
    let mut signals = Signals::listen()?;
    let logging_in = async {
        let redirect = RedirectListener::listen()
            .await
            .map_err(|error| CommandError::new(format!("cannot listen for the OAuth redirect: {error}")))?;
        let login = upstreams.login(name, redirect.url()).await.map_err(|error| {
            failed(workspace, &error).hint(format!(
                "for a server without OAuth, set its credentials with `headers` in [{section}]"
            ))
        })?;
        output.say(&format!("log in at {} to authorize ctx for {name}:\n  {}", login.issuer(), login.url()));
        if open_browser && let Err(problem) = browser::open(login.url()) {
            output.say(&format!("cannot open a browser ({problem}); open the address yourself"));
        }
        let answer = tokio::time::timeout(
            LOGIN_MAX,
            redirect.wait_for_response(|query| login.matches_redirect(query)),
        );
        let answer = answer.await.map_err(|_| {
            CommandError::new(format!("no login within {} minutes", LOGIN_MAX.as_secs() / 60))
        })?;
        login.finish(&answer).await.map_err(|error| failed(workspace, &error))?;
        upstreams.wait_until_connected(name).await.map_err(|error| {
            CommandError::new(format!("you are logged in, but {}", workspace.masked(error.to_string())))
        })
    };
    tokio::select! {
        result = logging_in => result?,
        exit = signals.next_exit() => {
            return Err(CommandError { exit, ..CommandError::new("cancelled; nothing was changed") });
        }
    }
    let tools = upstreams.statuses().first().map_or(0, |status| status.tools);
    output.print_result(&json!({ "name": name.as_str(), "tools": tools }), || {
        format!("✓ logged in; {name} has {}\n", count(tools as u64, "tool"))
    })
}

/// Deletes the OAuth tokens of a server.
pub(super) fn logout(name: &str, url: Option<&str>, global: &GlobalOptions) -> CommandResult {
    let forgotten = match (url, logins::store()) {
        (Some(url), Some(store)) => {
            forget_login(&*store, url).map_err(|error| CommandError::new(error.to_string()))?
        }
        _ => false,
    };
    global.output().print_result(&json!({ "name": name, "forgotten": forgotten }), || match forgotten {
        true => format!("✓ logged out of {name}\n"),
        false => format!("there was no login for {name}\n"),
    })
}

fn failed(workspace: &Workspace, error: &LoginError) -> CommandError {
    CommandError::new(workspace.masked(error.to_string()))
}
