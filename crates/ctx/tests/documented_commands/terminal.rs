//! Prompts, Ctrl-C and colours, in a real terminal (tmux).

use super::machine::Machine;
use super::root;
use ctx_testkit::wait_until;
use std::cell::Cell;
use std::process::Command;

/// A shell in a terminal; it ends with the test.
struct TmuxTerminal<'a> {
    machine: &'a Machine,
    /// Number of times that the screen was cleared.
    cleared: Cell<u32>,
}

impl<'a> TmuxTerminal<'a> {
    #[track_caller]
    fn open(machine: &'a Machine) -> Self {
        let is_there = Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success());
        assert!(is_there, "tmux is not there: run `cargo xtask tools`");
        let terminal = Self { machine, cleared: Cell::new(0) };
        let size = ["-x", "200", "-y", "80"];
        terminal.tmux(&[&["new-session", "-d", "-s", "walk"], &size[..], &["/bin/sh"]].concat());
        terminal.clear();
        terminal
    }

    /// Runs a tmux command. The tmux server is separate, with its socket in the folder of the test.
    fn tmux(&self, arguments: &[&str]) -> String {
        let template = self.machine.workspace.command([""; 0]);
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.machine.workspace.path("walk/tmux")).args(arguments).env_clear();
        command.envs(template.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let done = command.env("LC_ALL", "C.UTF-8").output().unwrap();
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    fn type_line(&self, line: &str) {
        self.tmux(&["send-keys", "-t", "walk", "-l", line]);
        self.press("Enter");
    }

    /// Clears the screen after all typed commands have run, so that it shows no old output.
    #[track_caller]
    fn clear(&self) {
        let number = self.cleared.get() + 1;
        self.cleared.set(number);
        // Split, so that only the printed text matches, not the command line that prints it.
        self.type_line(&format!("clear; printf 'clea%s\\n' red-{number}"));
        self.wait_for(&format!("cleared-{number}"));
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", "-t", "walk", key]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "walk"])
    }

    /// The screen with colour escape sequences.
    fn coloured_screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e", "-t", "walk"])
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        wait_until(&format!("the terminal shows `{text}`"), || self.screen().contains(text));
    }
}

impl Drop for TmuxTerminal<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

#[test]
fn a_terminal_is_asked_for_trust_once_and_ctrl_c_ends_the_server() {
    let machine = Machine::new(root());
    let terminal = TmuxTerminal::open(&machine);
    terminal.type_line("cd ~/src; $REAL_CTX up examples/workspace; echo \"ended with $?\"");
    terminal.wait_for("trust it? [y/N]");
    assert!(terminal.screen().contains("[tools.script.echo]"), "{}", terminal.screen());
    terminal.type_line("y");
    terminal.wait_for("serving http://");
    assert!(!terminal.screen().contains("ended with 0"), "{}", terminal.screen());
    terminal.press("C-c");
    terminal.wait_for("ended with 0");
    // The trust is recorded.
    terminal.clear();
    terminal.type_line("$REAL_CTX up examples/workspace; echo \"ended again with $?\"");
    terminal.wait_for("serving http://");
    assert!(!terminal.screen().contains("trust it?"), "{}", terminal.screen());
    terminal.press("C-c");
    terminal.wait_for("ended again with 0");
}

#[test]
fn a_terminal_that_does_not_trust_gets_the_rest() {
    let machine = Machine::new(root());
    let terminal = TmuxTerminal::open(&machine);
    terminal.type_line("cd ~/handbook; $REAL_CTX tool list; echo \"ended with $?\"");
    terminal.wait_for("trust it? [y/N]");
    terminal.type_line("");
    terminal.wait_for("ended with 0");
    let screen = terminal.screen();
    assert!(screen.contains("is not trusted, so this is left out: tools.script.echo"), "{screen}");
}

#[test]
fn progress_leaves_no_trace_and_colours_can_be_switched_off() {
    let machine = Machine::new(root());
    machine.run("cd ~/notes && ctx init -q && ctx sync -q").success();
    let piped = machine.run("ctx sync --full").success().stdout;
    let terminal = TmuxTerminal::open(&machine);
    let typed = "$REAL_CTX sync --full; echo \"ended with $?\"";
    terminal.type_line("cd ~/notes; export NO_COLOR=1");
    terminal.clear();
    terminal.type_line(typed);
    terminal.wait_for("ended with 0");
    let screen = terminal.screen();
    let (_, shown) = screen.split_once(typed).unwrap();
    assert_eq!(shown.split("ended with 0").next().unwrap().trim(), piped.trim());
    terminal.clear();
    terminal.type_line("$REAL_CTX search caching; $REAL_CTX sync nowhere; echo \"ended with $?\"");
    terminal.wait_for("ended with 2");
    let coloured = terminal.coloured_screen();
    assert!(!coloured.contains("\u{1b}[3") && !coloured.contains("\u{1b}[9"), "{coloured:?}");
}

#[test]
fn a_server_for_clients_tells_a_person_who_started_it() {
    let machine = Machine::new(root());
    let terminal = TmuxTerminal::open(&machine);
    terminal.type_line("$REAL_CTX run --mcp issues=http://127.0.0.1:9/mcp; echo \"ended with $?\"");
    terminal.wait_for("this command is meant to be started by an MCP client");
    terminal.press("C-c");
    terminal.wait_for("ended with 0");
}
