//! A simulated newcomer's machine: a fresh home with some notes and the example workspace, a shell that keeps
//! its working directory between commands, and `ctx` on the PATH.

use ctx_testkit::{CommandOutput, TestWorkspace, official_packages};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

/// The address in the documentation.
const DOCUMENTED: &str = "127.0.0.1:7331";

/// Wraps `ctx`. A command that serves or watches keeps running in the background until the next one starts,
/// as if in another terminal; it must then exit cleanly when it is interrupted.
const CTX: &str = r#"#!/bin/sh
for first in "$@"; do case $first in -*) ;; *) break ;; esac; done
case " $* " in
*" --stdio "* | *" --help "*) exec "$REAL_CTX" "$@" ;;
*" --watch "*) ;;
*) case $first in up | serve | run) ;; *) exec "$REAL_CTX" "$@" ;; esac ;;
esac
stop-server || exit 98
rm -f "$WALK/status"
(sh -c 'echo $$ > "$WALK/pid"; exec "$REAL_CTX" "$@"' ctx "$@" < /dev/null > "$WALK/log" 2>&1
echo $? > "$WALK/status") > /dev/null 2>&1 &
until grep -q '^serving http\|^watching ' "$WALK/log" 2> /dev/null || [ -s "$WALK/status" ]; do sleep 0.05; done
lines=-1
until [ "$lines" = "$(wc -l < "$WALK/log")" ]; do lines=$(wc -l < "$WALK/log"); sleep 0.3; done
cat "$WALK/log"
[ ! -s "$WALK/status" ] || exit "$(cat "$WALK/status")"
"#;
/// Interrupts the server with SIGINT, as Ctrl-C does, and waits for its end.
const STOP: &str = r#"#!/bin/sh
[ -e "$WALK/pid" ] || exit 0
kill -INT "$(cat "$WALK/pid")" 2> /dev/null
until [ -s "$WALK/status" ]; do sleep 0.05; done
rm "$WALK/pid"
[ "$(cat "$WALK/status")" = 0 ] || { echo "the server failed"; cat "$WALK/log"; exit 1; }
"#;
/// Wraps curl: calls the address that the server has here, and fails on error statuses.
const CURL: &str = r#"#!/bin/sh
for argument in "$@"; do
    shift
    set -- "$@" "$(printf %s "$argument" | sed "s/127\.0\.0\.1:7331/$SERVED/")"
done
exec /usr/bin/curl --fail-with-body "$@"
"#;
/// Replaces cargo: `ctx` is built already.
const CARGO: &str =
    "#!/bin/sh\n[ \"$1 $2 $3\" = \"run --release --\" ] || exit 97\nshift 3\nexec ctx \"$@\"\n";

/// A newcomer's documents.
const NOTES: [(&str, &str); 3] = [
    ("caching.md", "# Caching\nWe decided to cache results for an hour.\n"),
    ("gateway.md", "# Gateway runbook\nWhen the gateway is down, drain it first.\n"),
    ("team.md", "# The team\nGreta repairs the bikes.\n"),
];

pub(crate) struct Machine {
    pub(crate) workspace: TestWorkspace,
    folder: PathBuf,
}

impl Machine {
    pub(crate) fn new(repository: &Path) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let served = format!("127.0.0.1:{port}");
        let workspace = TestWorkspace::empty().untrusted();
        let folder = workspace.path("walk");
        let home = workspace.home().to_owned();
        let real = workspace.command([""; 0]).get_program().to_owned();
        let npx = format!(
            "#!/bin/sh\nshift; package=$1; shift\nexec node {}/$package/dist/index.js \"$@\"\n",
            official_packages().display()
        );
        for (name, script) in
            [("ctx", CTX), ("stop-server", STOP), ("curl", CURL), ("cargo", CARGO), ("npx", &npx)]
        {
            workspace.write(&format!("walk/bin/{name}"), script);
            workspace.mode(&format!("walk/bin/{name}"), 0o755);
        }
        let write = |path: &str, text: &str| {
            let path = home.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (name, text) in NOTES {
            write(&format!("notes/{name}"), text);
        }
        // Any free port: a developer's server may be using the default one.
        write(".config/ctx/config.toml", &format!("[server]\nbind = \"{served}\"\n"));
        write("cwd", home.to_str().unwrap());
        let examples = repository.join("examples/workspace");
        let workspace = workspace
            .env("PATH", &format!("{}/bin:/usr/local/bin:/usr/bin:/bin", folder.display()))
            .env("WALK", folder.to_str().unwrap())
            .env("REAL_CTX", real.to_str().unwrap())
            .env("SERVED", &served);
        let machine = Self { workspace, folder };
        for copy in ["handbook", "src/examples/workspace"] {
            let target = home.join(copy);
            let (from, parent) = (examples.display(), target.parent().unwrap().display());
            machine.run(&format!("mkdir -p {parent} && cp -R {from} {}", target.display())).success();
            let config = target.join("ctx.toml");
            let text = fs::read_to_string(&config).unwrap().replace(DOCUMENTED, &served);
            fs::write(config, text).unwrap();
        }
        machine
    }

    /// Writes a block of a page to `$BLOCKS/NAME`.
    pub(crate) fn lay_out(&self, name: &str, text: &str) {
        self.workspace.write(&format!("walk/blocks/{name}"), text);
    }

    /// Runs a command in the working directory where the previous one ended; its stderr goes to stdout.
    #[track_caller]
    pub(crate) fn run(&self, command: &str) -> CommandOutput {
        let cwd = self.workspace.home().join("cwd");
        let (cwd, blocks) = (cwd.display(), self.folder.join("blocks"));
        self.workspace.shell(&format!(
            "exec 2>&1\nBLOCKS={}\ncd \"$(cat {cwd})\" || exit 99\n{command}\nstatus=$?\npwd > {cwd}\nexit $status\n",
            blocks.display()
        ))
    }
}
