//! A user's first hour, command by command, with the output for people and for scripts.
#![cfg(unix)]

use ctx_testkit::{TestWorkspace, ctx_snapshot};
use std::fs;

fn with_two_documents() -> TestWorkspace {
    TestWorkspace::new()
        .file("docs/deploy.md", "# Deploy\nPush the button.\n")
        .file("docs/roll-back.md", "# Roll back\nPull the lever.\n")
}

fn synced() -> TestWorkspace {
    let workspace = with_two_documents();
    workspace.ctx("sync").success();
    workspace
}

#[test]
fn init_makes_a_workspace_of_an_empty_folder_once() {
    let w = TestWorkspace::empty();
    ctx_snapshot!(w.ctx("init"), @r"
    exit_code: 0
    ----- stdout -----
    created [ROOT]/ctx.toml
    next: `ctx sync`, then `ctx search WORDS` or `ctx serve mcp`

    ----- stderr -----
    ");
    let config = w.read("ctx.toml");
    ctx_snapshot!(w.ctx("init"), @r"
    exit_code: 0
    ----- stdout -----
    [ROOT]/ctx.toml already exists; nothing was changed

    ----- stderr -----
    ");
    assert_eq!(w.read("ctx.toml"), config);
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:files: no documents found

    ----- stderr -----
    ");
}

#[test]
fn init_reads_every_format_and_says_what_it_leaves_out() {
    let w = TestWorkspace::empty()
        .file("report.PDF", "%PDF-1.4")
        .file("plan.ipynb", "{}")
        .file("main.py", "print(1)")
        .file("picture.png", "x")
        .file("other.png", "x")
        .file("core", "x")
        .file("Makefile", "all:")
        .file("settings.yaml", "a: 1");
    let created = w.ctx("init").success();
    created.clone().stdout_contains(
        "not indexed: 2 .png (no known text format); 1 file without an extension (unknown format): `include_globs` and \
         `exclude_globs` in ctx.toml decide\n",
    );
    // The patterns include formats that the folder does not contain yet.
    let documents = "md,markdown,mdx,txt,rst,adoc,pdf,docx,pptx,xlsx,odt,odp,ods,epub,html,htm,xhtml,ipynb,csv,tsv,tex,org";
    let written = w.read("ctx.toml");
    let globs = format!("include_globs = [\"**/*.{{{documents},PDF,py,yaml}}\", \"**/Makefile\"]");
    assert!(written.contains(&globs), "{written}");
    let empty = TestWorkspace::empty();
    empty.ctx("init").success();
    let written = empty.read("ctx.toml");
    assert!(written.contains(&format!("include_globs = [\"**/*.{{{documents}}}\"]")), "{written}");
    w.shell("ctx up report.PDF").code(2).stderr_contains("a workspace is a folder");
}

#[test]
fn a_new_workspace_indexes_settings_and_names_without_an_ending_and_nothing_generated() {
    let w = TestWorkspace::empty()
        .file("deploy.yaml", "zebra: 1")
        .file("service.xml", "<zebra/>")
        .file("README", "zebra")
        .file("sub/Dockerfile", "# zebra")
        .file("package-lock.json", "{\"zebra\": 1}")
        .file("site/app.min.js", "zebra()")
        .file("node_modules/zebra/index.js", "zebra()")
        .file("build.log", "zebra")
        .file("large [1].json", &format!("{{\"zebra\": \"{}\"}}", "x".repeat(256 << 10)))
        .file("small.json", "{\"zebra\": 1}");
    w.ctx("init").success();
    w.ctx("sync").success();
    let mut found = w.ctx("search zebra --json --limit 50 --mode keyword").success().found_ids();
    found.sort();
    assert_eq!(found, ["README", "deploy.yaml", "service.xml", "small.json", "sub/Dockerfile"]);
}

#[test]
fn neither_settings_nor_scripts_are_documents() {
    let tool = "tool = { name = \"greet\", description = \"a zebra\", parameters = {} }\n\
        function tool.execute() return 1 end\n";
    let w = TestWorkspace::empty()
        .config(
            "# a zebra\n[connectors.filesystem.all]\nroot = \".\"\n[embedding]\nprovider = \"disabled\"\n\
             [tools.script.greet]\npath = \"tools/greet.lua\"\n",
        )
        .file("tools/greet.lua", tool)
        .file("notes.md", "a zebra");
    w.ctx("sync").success();
    assert_eq!(w.ctx("search zebra --json").success().found_ids(), ["notes.md"]);
}

#[test]
fn scripts_of_agents_and_connectors_are_no_documents_either() {
    let w = TestWorkspace::empty()
        .config(
            "[connectors.filesystem.all]\nroot = \".\"\n[embedding]\nprovider = \"disabled\"\n\
             [agents.script.reviewer]\npath = \"agents/reviewer.lua\"\n\
             [connectors.script.notes]\npath = \"connectors/notes.lua\"\n",
        )
        .file(
            "agents/reviewer.lua",
            "agent = { name = \"reviewer\", description = \"a zebra\" }\n\
             function agent.resolve() return { system = \"a zebra\", tools = {} } end\n",
        )
        .file(
            "connectors/notes.lua",
            "connector = { name = \"notes\", description = \"a zebra\" }\n\
             function connector.scan() return {} end\n",
        )
        .file("agents/notes.md", "a zebra");
    w.ctx("sync filesystem").success();
    assert_eq!(w.ctx("search zebra --json").success().found_ids(), ["agents/notes.md"]);
}

#[test]
fn neither_settings_nor_scripts_are_documents_in_the_repository_of_the_workspace() {
    let w = TestWorkspace::empty()
        .config(
            "# a zebra\n[embedding]\nprovider = \"disabled\"\n[tools.script.greet]\npath = \"tools/greet.lua\"\n\
             [connectors.git.here]\nurl = \".\"\n[connectors.git.tools]\nurl = \".git\"\nroot = \"tools\"\n\
             [connectors.git.origin]\nurl = \"mirror.git\"\n",
        )
        .file("tools/greet.lua", "-- a zebra\n")
        .file("tools/greet.lua.md", "a zebra")
        .file("notes.md", "a zebra");
    w.shell(
        "git init -q -b main && git add --all && \
         git -c user.name=a -c user.email=a@example.com commit -q -m all && git clone -q --bare . mirror.git && \
         git remote add origin ./mirror.git",
    )
    .success();
    let found = |w: &TestWorkspace| {
        w.ctx("sync").success();
        let mut found = w.ctx("search zebra --json --limit 50").success().found_ids();
        found.sort();
        found
    };
    assert_eq!(
        found(&w),
        ["greet.lua.md", "notes.md", "notes.md", "tools/greet.lua.md", "tools/greet.lua.md"]
    );
    // In another repository, such files are documents like all others.
    let url = w.root().display();
    let other = format!("[embedding]\nprovider = \"disabled\"\n[connectors.git.other]\nurl = \"{url}\"\n");
    let other = TestWorkspace::empty().config(&other);
    assert_eq!(found(&other), ["notes.md", "tools/greet.lua", "tools/greet.lua.md"]);
}

#[test]
fn init_indexes_the_whole_folder_whatever_its_folders_are_called() {
    let w = TestWorkspace::empty().file("docs/guide.md", "# Guide").file("src/main.rs", "fn main() {}");
    w.ctx("init").success();
    let config = w.read("ctx.toml");
    assert!(config.contains("[connectors.filesystem.files]\nroot = \".\""), "{config}");
    assert!(config.contains("include_globs = [\"**/*.{md,"), "{config}");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:files: 2 added

    ----- stderr -----
    embeddings of builtin-best-1 are missing for 2 documents: a running server computes them, `ctx embed pending` does so now
    ");
}

#[test]
fn init_elsewhere_leaves_this_folder_alone() {
    let w = TestWorkspace::empty().file("project/README.md", "# Project");
    assert_eq!(w.ctx("init project --json").success().json()["created"], true);
    assert!(!w.path("ctx.toml").exists());
    w.ctx("search project").code(2);
    w.ctx("-c project/ctx.toml sync").success();
    assert_eq!(w.ctx("-c project/ctx.toml search project --json").found_ids(), ["README.md"]);
    w.ctx("init nowhere").code(2).stderr_contains("there is no folder nowhere");
}

#[test]
fn a_sync_tells_what_it_did_and_the_next_one_that_nothing_changed() {
    let w = with_two_documents();
    ctx_snapshot!(w.ctx("sync --dry-run"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 2 added

    ----- stderr -----
    dry run: nothing is written; a sync would do this
    ");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 2 added

    ----- stderr -----
    ");
    ctx_snapshot!(w.ctx("sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 2 unchanged

    ----- stderr -----
    ");
    w.write("docs/deploy.md", "# Deploy\nPush the other button, twice.\n");
    w.remove("docs/roll-back.md");
    ctx_snapshot!(w.ctx("sync filesystem:docs"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 1 updated, 1 deleted

    ----- stderr -----
    ");
}

#[test]
fn what_was_synced_is_found_and_can_be_read_whole() {
    let w = synced();
    ctx_snapshot!(w.ctx("search which button do I push"), @r"
    exit_code: 0
    ----- stdout -----
     1. Deploy  (0.16)
        filesystem:docs  deploy.md  [DATE]
        Push the button.
        id [ID]

    ----- stderr -----
    ");
    let answer = w.ctx("search button --json").success().json();
    let id = answer["results"][0]["id"].as_str().unwrap().to_owned();
    ctx_snapshot!(w.ctx_args(["get", &id]), @r"
    exit_code: 0
    ----- stdout -----
    title         Deploy
    source        filesystem:docs
    source_id     deploy.md
    source_url    file://[ROOT]/docs/deploy.md
    created_at    [TIME]
    updated_at    [TIME]
    content_type  text/markdown

    # Deploy
    Push the button.

    ----- stderr -----
    ");
    let document = w.ctx_args(["get", &id, "--json"]).success().json();
    assert_eq!(document["body"], "# Deploy\nPush the button.\n");
    ctx_snapshot!(w.ctx("search zeppelin"), @r"
    exit_code: 0
    ----- stdout -----

    ----- stderr -----
    nothing relevant found
    hint: try other words; `ctx sources` shows what is indexed
    ");
    let explained = w.ctx("search button --source filesystem --explain --json").success().json();
    assert_eq!(explained["results"][0]["explain"]["terms"], serde_json::json!(["button"]));
}

#[test]
fn sources_and_stats_tell_how_much_there_is_and_how_fresh() {
    let w = with_two_documents();
    ctx_snapshot!(w.ctx("sources"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs  ok  watched  never synced; run `ctx sync`

    ----- stderr -----
    ");
    w.ctx("sync").success();
    ctx_snapshot!(w.ctx("sources"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs  ok  watched  2 documents, synced [TIME]

    ----- stderr -----
    ");
    ctx_snapshot!(w.ctx("stats"), @r"
    exit_code: 0
    ----- stdout -----
    documents      2
    chunks         2
    text           [SIZE]
    store          [SIZE]
    keyword index  [SIZE]
    vectors        none

    source           documents  chunks  text  last sync
    filesystem:docs  2          2       [SIZE]  [TIME]

    ----- stderr -----
    ");
    assert_eq!(w.ctx("sources --json").json()["sources"][0]["documents"], 2);
    assert_eq!(w.ctx("stats --json").json()["documents"], 2);
}

#[test]
fn tools_are_listed_with_their_parameters() {
    let w = TestWorkspace::new();
    ctx_snapshot!(w.ctx("tool list"), @r"
    exit_code: 0
    ----- stdout -----
    get  (built in)
        Get one document by id: its whole text and its chunks.
        * id         The document's id, from a search result.
    search  (built in)
        Search the knowledge base. Finds documents by words and by meaning and returns the part that matches.
        * query      What to look for, in plain words.
          mode       How to search; the workspace decides when absent.
          limit      How many results at most; more than 100 is cut to 100.
          filters    What may be found at all.
          explain    Whether each result says where its score comes from.
          prefix     Whether the last word may be the beginning of one, as while typing.
    sources  (built in)
        List the sources of the knowledge base and their health.
    execute  (built in)
        Runs a Luau script that calls many functions in one go; only its result comes back. `sdk.<provider>.<name>{...}` calls a function and gives its value, `context.search(query)` searches, `parallel{f, g}` runs functions side by side, `paginate(sdk.a.b, {...})` loops over the items of all pages, `print(...)` logs. End with `return value`.
        * script     The script's text.
    get_function_docs  (built in)
        Shows how functions are called: Luau signature, parameters, all types. Read it before you call an unknown function.
        * name       `provider.name`, or several; `provider.name.Type` is one type.
    list_functions  (built in)
        Lists the providers of functions, or one provider's functions.
          provider   List its functions, not all providers.
          tag        Only functions with this tag.
          page       Page of a long list.
    search_docs  (built in)
        Finds functions for scripts, best first: `sdk.provider.name(parameters) – what it does`.
        * query      What it should do, or a name, parameter or type.
          provider   Only its functions.
          limit      Maximum results.

    ----- stderr -----
    ");
    let listed = w.ctx("tool list --json").success().json();
    assert_eq!(listed["tools"][1]["full_name"], "context.search");
    assert_eq!(listed["tools"][1]["parameters"]["required"][0], "query");
}

#[test]
fn a_run_tells_what_was_called_inside_it() {
    let w = synced().file("two.luau", "context.search('button') return #context.search('button')");
    let executed = w.ctx("exec two.luau --json").success().json();
    assert_eq!(executed["meta"]["calls"], 2, "{executed}");
    assert!(executed["meta"]["bytes_kept"].as_u64().unwrap() > 100, "{executed}");
    let runs = w.ctx("runs --json").success().json();
    let run = &runs["runs"][0];
    assert_eq!(
        (&run["calls"], &run["bytes_kept"]),
        (&executed["meta"]["calls"], &executed["meta"]["bytes_kept"])
    );
    ctx_snapshot!(w.ctx("runs"), @r"
    exit_code: 0
    ----- stdout -----
    [ID]  [TIME]  ctx.execute  cli  ok  [DURATION]  [SIZE]  2 calls, [SIZE] of results not returned

    ----- stderr -----
    ");
    let id = run["id"].as_str().unwrap();
    let shown = w.ctx_args(["runs", id]).success().stdout;
    assert_eq!(shown.matches("\nnested     2 calls, ").count(), 1, "{shown}");
}

#[test]
fn runs_are_recorded_and_one_can_be_looked_at() {
    let w = synced();
    ctx_snapshot!(w.ctx("runs"), @r"
    exit_code: 0
    ----- stdout -----

    ----- stderr -----
    no runs are recorded
    ");
    w.ctx("search button").success();
    w.ctx("runs --failed").success().stderr_contains("no failed runs are recorded");
    w.ctx("runs --tool nobody").success().stderr_contains("no runs of this tool are recorded");
    w.ctx("search button --limit 0").code(2);
    ctx_snapshot!(w.ctx("runs --failed"), @r"
    exit_code: 0
    ----- stdout -----
    [ID]  [TIME]  context.search  cli  bad_request  [DURATION]  [SIZE]

    ----- stderr -----
    ");
    let runs = w.ctx("runs --json").success().json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 2);
    let id = runs["runs"][1]["id"].as_str().unwrap().to_owned();
    ctx_snapshot!(w.ctx_args(["runs", &id]), @r#"
    exit_code: 0
    ----- stdout -----
    id         [ID]
    tool       context.search
    caller     cli
    started    [TIME]
    took       [DURATION]
    outcome    ok
    arguments  {"query":"button"} ([SIZE])
    result     [SIZE]

    ----- stderr -----
    "#);
    assert_eq!(w.ctx_args(["runs", &id, "--json"]).json()["runs"][0]["tool"], "context.search");
    ctx_snapshot!(w.ctx("runs zzz"), @r"
    exit_code: 1
    ----- stdout -----

    ----- stderr -----
    error: no run, or more than one, has an id that begins with `zzz`
    hint: `ctx runs` lists the recorded runs
    ");
}

#[test]
fn the_configuration_is_shown_with_origins_and_without_secrets() {
    let w = TestWorkspace::new()
        .config("[server]\ntoken = \"${CTX_TOKEN}\"\n\n[retrieval]\nfinal_limit = 5\n")
        .env("CTX_TOKEN", "correct-horse-battery");
    let shown = w.ctx("config show").success();
    for line in ["token = \"***\"", "# ctx.toml:2", "final_limit = 5", "# ctx.toml:5", "# default"] {
        assert!(shown.stdout.contains(line), "{line} is missing from:\n{}", shown.stdout);
    }
    let shown_as_json = w.ctx("config show --json").success();
    for outcome in [&shown, &shown_as_json, &w.ctx("doctor"), &w.ctx("-vv tool list")] {
        assert!(!format!("{outcome:?}").contains("correct-horse"), "{outcome:?}");
    }
    let settings = shown_as_json.json()["settings"].as_array().unwrap().clone();
    let limit = settings.iter().find(|setting| setting["key"] == "final_limit").unwrap();
    assert_eq!((limit["value"].as_u64(), limit["origin"].as_str()), (Some(5), Some("ctx.toml:5")));
    let defaults = w.ctx("config show --defaults").success();
    assert!(defaults.stdout.contains("bind = \"127.0.0.1:7331\""), "{}", defaults.stdout);
}

#[test]
fn the_doctor_finds_nothing_wrong_with_a_synced_workspace_and_says_what_else_is() {
    let w = synced();
    ctx_snapshot!(w.ctx("doctor"), @r"
    exit_code: 0
    ----- stdout -----
    ✓ configuration: [ROOT]/ctx.toml
    ✓ store: [DATA]/ctx.sqlite
    ✓ keyword index: intact and up to date
    ✓ embeddings: disabled; search is by keywords only
    ✓ filesystem:docs: 2 documents, synced [TIME]

    ----- stderr -----
    ");
    assert_eq!(w.ctx("doctor --json").success().json()["ok"], true);
    w.remove("docs");
    ctx_snapshot!(w.ctx("doctor"), @r"
    exit_code: 1
    ----- stdout -----
    ✓ configuration: [ROOT]/ctx.toml
    ✓ store: [DATA]/ctx.sqlite
    ✓ keyword index: intact and up to date
    ✓ embeddings: disabled; search is by keywords only
    ✗ filesystem:docs: cannot read the folder docs: no such file or directory
        hint: fix it in ctx.toml, then run `ctx sync filesystem:docs`

    ----- stderr -----
    error: 1 of 5 checks failed
    ");
    assert_eq!(w.ctx("doctor --json").code(1).json()["ok"], false);
}

#[test]
fn an_export_has_every_document_with_its_tags() {
    let w = TestWorkspace::new()
        .config("[connectors.filesystem.docs]\nroot = \"docs\"\ntags = [\"handbook\"]\n")
        .file("docs/a.md", "# A\nalpha")
        .file("docs/b.md", "# B\nbeta");
    assert_eq!(w.ctx("export").success().json(), serde_json::json!({"documents": []}));
    w.ctx("sync").success();
    let exported = w.ctx("export --json").success().json();
    let documents = exported["documents"].as_array().unwrap();
    assert_eq!(documents.len(), 2);
    assert!(documents.iter().all(|document| document["tags"] == serde_json::json!(["handbook"])));

    let to_file = w.ctx("export -o out.json").success();
    assert_eq!(to_file.stdout, "");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&w.read("out.json")).unwrap(), exported);
}

#[test]
fn a_reader_that_leaves_early_is_not_an_error() {
    let w = synced();
    // Larger than a pipe's buffer, so that the writer gets an error.
    w.write("docs/dull.md", "All work and no play makes Jack a dull boy. ".repeat(4_000));
    w.ctx("sync").success();
    for command in ["export", "search boy --json", "completions bash"] {
        let outcome = w.shell(&format!("{{ ctx {command}; echo $? >&2; }} | true"));
        assert_eq!(outcome.stderr, "0\n", "ctx {command}");
    }
}

#[test]
fn completions_know_the_commands() {
    let w = TestWorkspace::empty();
    let script = w.ctx("completions bash").success().stdout;
    assert!(script.contains("_ctx()") && script.contains("--dry-run"), "{script}");
    let checked = w.shell("ctx completions bash | bash -n");
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""));
    w.ctx("completions tcsh").code(2);
}

#[test]
fn a_workspace_is_found_from_below_and_by_name_from_anywhere() {
    let w = synced();
    fs::create_dir_all(w.path("docs/deep/er")).unwrap();
    let below = w.shell("cd docs/deep/er && ctx search button --json").success();
    assert_eq!(below.found_ids(), ["deploy.md"]);
    let elsewhere =
        w.shell("CTX_CONFIG=$PWD/ctx.toml && export CTX_CONFIG && cd / && ctx search button --json");
    assert_eq!(elsewhere.success().found_ids(), ["deploy.md"]);
}

#[test]
fn quiet_leaves_answers_and_errors() {
    let w = with_two_documents();
    assert_eq!(w.ctx("-q search button").success().stderr, "");
    w.write("docs/huge.txt", "");
    fs::File::options().write(true).open(w.path("docs/huge.txt")).unwrap().set_len(1 << 30).unwrap();
    ctx_snapshot!(w.ctx("-q sync"), @r"
    exit_code: 0
    ----- stdout -----
    filesystem:docs: 2 added, 1 warning

    ----- stderr -----
    ");
    w.ctx("-q sync nowhere").code(2).stderr_contains("error: no source named `nowhere`");
}

#[test]
fn a_source_that_left_the_configuration_can_be_forgotten() {
    let w = synced();
    w.ctx("sources --forget filesystem:docs").code(2);
    w.write(
        "ctx.toml",
        "[connectors.filesystem.renamed]\nroot = \"docs\"\n[embedding]\nprovider = \"disabled\"\n",
    );
    w.ctx("sync").success();
    assert_eq!(w.ctx("search button --json").found_ids(), ["deploy.md", "deploy.md"]);
    assert!(w.ctx("doctor").success().stdout.contains("ctx sources --forget filesystem:docs"));
    w.ctx("sources --forget filesystem:docs").success();
    assert_eq!(w.ctx("search button --json").found_ids(), ["deploy.md"]);
    w.ctx("sources --forget filesystem:docs").code(2);
}
