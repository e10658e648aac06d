//! Secret files are not indexed by any source, unless the user names them.
#![cfg(unix)]

use ctx_testkit::TestWorkspace;

/// Sets up `repository/` as a git repository with all of its files committed.
const COMMIT: &str = "cd repository && git init -q -b main && git add --all --force && \
    git -c user.name=a -c user.email=a@example.com commit -q -m all";

fn with_secrets(globs: &str) -> TestWorkspace {
    let config = format!(
        "[connectors.filesystem.files]\nroot = \"files\"\n{globs}\n\
         [connectors.git.repository]\nurl = \"repository\"\n{globs}\n"
    );
    let mut w = TestWorkspace::empty().config(&config);
    for folder in ["files", "repository"] {
        w = w
            .file(&format!("{folder}/.env"), "TOKEN=zebra7\n")
            .file(&format!("{folder}/app/.env.local"), "TOKEN=zebra7\n")
            .file(&format!("{folder}/.aws/credentials"), "zebra7\n")
            .file(&format!("{folder}/certs/server.pem"), "zebra7\n")
            .file(&format!("{folder}/id_rsa"), "zebra7\n")
            .file(&format!("{folder}/infra/terraform.tfstate"), "zebra7\n")
            .file(&format!("{folder}/.env.example"), "TOKEN=zebra7\n")
            .file(&format!("{folder}/credentials/rotation.md"), "zebra7\n");
    }
    w.shell(COMMIT).success();
    w
}

fn indexed_files(w: &TestWorkspace) -> Vec<String> {
    let mut found = w.ctx("search zebra7 --json --limit 50").success().found_ids();
    found.sort();
    found
}

#[test]
fn no_source_indexes_secret_files_whatever_its_globs_say() {
    for globs in ["", "include_globs = [\"**/*\", \"**/.*\", \".aws/**\"]"] {
        let w = with_secrets(globs);
        let synced = w.ctx("sync").success();
        let example = [".env.example", ".env.example", "credentials/rotation.md", "credentials/rotation.md"];
        assert_eq!(indexed_files(&w), example, "{}", synced.stdout);
        // A hidden folder is not walked, but all paths of a repository are listed.
        synced
            .stdout_contains("filesystem:files: 2 added, 5 secret files left out")
            .stdout_contains("git:repository: 2 added, 6 secret files left out");
        assert_eq!(w.ctx("sync filesystem --json").success().json()["sources"][0]["secret_files"], 5);
    }
}

#[test]
fn a_secret_file_that_was_indexed_disappears_and_one_that_is_named_stays() {
    let named = with_secrets("include_sensitive_globs = [\"certs/*.pem\", \".aws/credentials\", \".env\"]");
    named.ctx("sync").success();
    let mut expected = [".aws/credentials", ".env", ".env.example", "certs/server.pem"].to_vec();
    expected.push("credentials/rotation.md");
    let mut both = [expected.clone(), expected].concat();
    both.sort_unstable();
    assert_eq!(indexed_files(&named), both);
    // Simulates documents that were indexed under older rules.
    named.write(
        "ctx.toml",
        named.read("ctx.toml").replace("include_sensitive_globs", "# include_sensitive_globs"),
    );
    named.ctx("sync").success().stdout_contains("3 deleted");
    assert_eq!(indexed_files(&named).len(), 4);
}

#[test]
fn a_secret_file_disappears_even_if_not_everything_can_be_listed() {
    let w = TestWorkspace::new()
        .config("[connectors.filesystem.docs]\nroot = \"docs\"\ninclude_sensitive_globs = [\"*.pem\"]\n")
        .file("docs/server.pem", "zebra7")
        .file("docs/gone.md", "zebra7")
        .file("docs/locked/a.md", "zebra7")
        .unprivileged();
    w.ctx("sync").success();
    assert_eq!(indexed_files(&w), ["gone.md", "locked/a.md", "server.pem"]);
    w.write("ctx.toml", w.read("ctx.toml").replace("include_sensitive_globs", "# include_sensitive_globs"));
    w.mode("docs/locked", 0o000);
    w.remove("docs/gone.md");
    w.ctx("sync").success().stdout_contains("1 deleted");
    assert_eq!(indexed_files(&w), ["gone.md", "locked/a.md"]);
}

#[test]
fn globs_of_secret_files_are_checked_and_shown_like_others() {
    let w = TestWorkspace::new();
    let section = "[connectors.filesystem.docs]\nroot = \"docs\"\ninclude_sensitive_globs = ";
    w.write("ctx.toml", format!("{section}[\"certs[/*\"]\n"));
    w.ctx("sources").stderr_contains("include_sensitive_globs: error parsing glob 'certs[/*'");
    w.write("ctx.toml", format!("{section}[\"certs/*.pem\"]\n"));
    w.ctx("config show").success().stdout_contains("certs/*.pem");
}

#[test]
fn a_symbolic_link_does_not_rename_a_secret_file() {
    let w = TestWorkspace::new()
        .config("[connectors.filesystem.docs]\nroot = \"docs\"\nfollow_symlinks = true\n")
        .file("docs/.env", "zebra7")
        .file("docs/.ssh/notes", "zebra7")
        .file("docs/real.txt", "zebra7");
    w.shell("cd docs && ln -s .env notes.txt && ln -s .ssh pages && ln -s real.txt linked.txt").success();
    w.ctx("sync").success().stdout_contains("3 secret files left out");
    assert_eq!(indexed_files(&w), ["linked.txt", "real.txt"]);
}

#[test]
fn a_new_workspace_counts_secret_files_and_reads_example_environments() {
    let w = TestWorkspace::empty()
        .file("notes.md", "zebra7")
        .file(".env", "TOKEN=zebra7")
        .file(".env.example", "TOKEN=zebra7 ")
        .file("server.pem", "zebra7")
        .file("picture.png", "x");
    w.ctx("init").success().stdout_contains(
        "not indexed: 1 .png (no known text format): `include_globs` and `exclude_globs` in ctx.toml decide; 2 secret files \
         (`include_sensitive_globs` decides)",
    );
    w.ctx("sync").success();
    assert_eq!(indexed_files(&w), [".env.example", "notes.md"]);
    let only = TestWorkspace::empty().file("notes.md", "x").file("id_rsa", "x");
    only.ctx("init")
        .success()
        .stdout_contains("\nnot indexed: 1 secret file (`include_sensitive_globs` decides)\n");
}

#[test]
fn a_clone_cannot_have_the_users_secret_files_indexed() {
    let w = TestWorkspace::empty()
        .config("[connectors.filesystem.all]\nroot = \".\"\ninclude_sensitive_globs = [\".env\"]\n")
        .file(".env", "TOKEN=zebra7")
        .untrusted();
    w.ctx("sync").code(1).stderr_contains("is not trusted");
    assert_eq!(indexed_files(&w), Vec::<String>::new());
    w.ctx("sync --trust").success();
    assert_eq!(indexed_files(&w), [".env"]);
}

/// A PEM private key, assembled here so that this file does not contain one.
fn private_key() -> String {
    let line = "QUJD".repeat(16);
    format!("-----BEGIN {} KEY-----\n{line}\n{line}\n-----END {} KEY-----\n", "PRIVATE", "PRIVATE")
}

fn with_key_in_a_text_file(globs: &str) -> TestWorkspace {
    let key = private_key();
    let config = format!(
        "[embedding]\nprovider = \"disabled\"\n[connectors.filesystem.files]\nroot = \"files\"\n{globs}\n\
         [connectors.git.repository]\nurl = \"repository\"\n{globs}\n"
    );
    let mut w = TestWorkspace::empty().config(&config);
    let wide: Vec<u8> = format!("\u{feff}zebra7\n{key}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    for folder in ["files", "repository"] {
        w = w
            .file(&format!("{folder}/deploy.txt"), &format!("zebra7\n{key}"))
            .bytes(&format!("{folder}/exported.txt"), &wide)
            .file(&format!("{folder}/keys.md"), "zebra7: a key begins with -----BEGIN PRIVATE KEY-----");
    }
    w.shell(COMMIT).success();
    w
}

#[test]
fn a_private_key_in_a_text_file_is_not_indexed() {
    let w = with_key_in_a_text_file("");
    let left_out = "1 added, 2 secret files left out";
    w.ctx("sync")
        .success()
        .stdout_contains(&format!("files: {left_out}"))
        .stdout_contains(&format!("repository: {left_out}"));
    assert_eq!(indexed_files(&w), ["keys.md", "keys.md"]);
    w.ctx("sync").success().stdout_contains("files: 1 unchanged, 2 secret files left out");
    // A page that contains a key is removed from the index.
    w.write("files/keys.md", format!("zebra7\n{}", private_key()));
    w.ctx("sync filesystem").success().stdout_contains("1 deleted, 3 secret files left out");
    w.write("files/keys.md", "zebra7");
    w.ctx("sync filesystem").success().stdout_contains("1 added, 2 secret files left out");
}

#[test]
fn a_file_with_a_private_key_is_indexed_where_it_is_named_and_only_as_long() {
    let w = with_key_in_a_text_file("");
    w.ctx("sync").success();
    let config = w.read("ctx.toml");
    let globs = "include_sensitive_globs = [\"deploy.txt\"]";
    let named = with_key_in_a_text_file(globs);
    w.write("ctx.toml", named.read("ctx.toml"));
    w.ctx("sync").success().stdout_contains("1 added, 1 unchanged, 1 secret file left out");
    assert_eq!(indexed_files(&w), ["deploy.txt", "deploy.txt", "keys.md", "keys.md"]);
    w.write("ctx.toml", config);
    w.ctx("sync").success().stdout_contains("1 deleted, 1 unchanged, 2 secret files left out");
    assert_eq!(indexed_files(&w), ["keys.md", "keys.md"]);
}
