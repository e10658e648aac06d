//! `fs`: access to the script's own directory only.

use crate::Test;
use crate::bench::Bench;
use serde_json::json;

pub(crate) const TESTS: &[Test] = tests!(files:
    files_beside_the_script_are_read,
    files_are_listed_by_glob,
    nothing_outside_is_reached,
    a_file_that_is_too_large_is_refused,
    files_that_hold_secrets_are_neither_read_nor_listed,
);

fn with_files() -> Bench {
    let bench = Bench::new();
    let tools = bench.tools();
    std::fs::create_dir_all(tools.join("data/deep")).unwrap();
    std::fs::write(tools.join("data/a.json"), "[1]").unwrap();
    std::fs::write(tools.join("data/b.txt"), b"\xff\0b").unwrap();
    std::fs::write(tools.join("data/deep/c.json"), "[3]").unwrap();
    std::fs::write(bench.outside().join("outside.txt"), "not for scripts").unwrap();
    bench
}

async fn files_beside_the_script_are_read() {
    let bench = with_files();
    let body =
        "return { fs.read('data/a.json'), #fs.read('data/b.txt'), fs.read('./data/../data/deep/c.json') }";
    assert_eq!(bench.answer(body, json!({})).await.unwrap(), json!(["[1]", 3, "[3]"]));
    let error = bench.error("fs.read('data/none')").await;
    assert!(error.message().starts_with("tools/x.lua:2: fs.read: `data/none` cannot be read: "), "{error}");
    let error = bench.error("fs.read('data')").await;
    assert!(error.message().ends_with("it is not a file"), "{error}");
}

async fn files_are_listed_by_glob() {
    let bench = with_files();
    let body = "return { fs.list(), fs.list('data'), fs.list('data', '*.json'), fs.list('data', '**/*.json'),
        fs.list('.', 'data/*.txt'), fs.list('data', '*.none') }";
    let files = json!([
        ["x.lua"],
        ["data/a.json", "data/b.txt"],
        ["data/a.json"],
        ["data/a.json", "data/deep/c.json"],
        ["data/b.txt"],
        [],
    ]);
    assert_eq!(bench.answer(body, json!({})).await.unwrap(), files);
}

async fn nothing_outside_is_reached() {
    let bench = with_files();
    let absolute = bench.outside().join("outside.txt").display().to_string();
    for path in ["../outside.txt", "data/../../outside.txt", absolute.as_str(), "/etc/passwd"] {
        let error = bench.error(&format!("return fs.read('{path}')")).await;
        assert!(error.message().ends_with("is outside of the script's directory"), "{path}: {error}");
        let error = bench.error(&format!("return fs.list('{path}')")).await;
        assert!(error.message().ends_with("is outside of the script's directory"), "{path}: {error}");
    }
    #[cfg(unix)]
    {
        let tools = bench.tools();
        std::os::unix::fs::symlink("../../outside.txt", tools.join("data/link.txt")).unwrap();
        std::os::unix::fs::symlink("..", tools.join("up")).unwrap();
        std::os::unix::fs::symlink("/etc", tools.join("etc")).unwrap();
        std::os::unix::fs::symlink("a.json", tools.join("data/inside.json")).unwrap();
        for path in ["data/link.txt", "up/outside.txt", "etc/passwd"] {
            let error = bench.error(&format!("return fs.read('{path}')")).await;
            assert!(error.message().ends_with("is outside of the script's directory"), "{path}: {error}");
        }
        let body =
            "return { fs.read('data/inside.json'), fs.list('.', '**/*.json'), fs.list('data', '*.txt') }";
        let inside = ["data/a.json", "data/deep/c.json", "data/inside.json"];
        let answer = bench.answer(body, json!({})).await.unwrap();
        assert_eq!(answer, json!(["[1]", inside, ["data/b.txt"]]));
    }
}

async fn files_that_hold_secrets_are_neither_read_nor_listed() {
    let bench = with_files();
    let tools = bench.tools();
    for folder in [".ctx", ".git", "keys", "Config"] {
        std::fs::create_dir_all(tools.join(folder)).unwrap();
    }
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n";
    for (name, content) in [
        ("ctx.toml", "token = 'x'"),
        ("Config/CTX.toml", "token = 'x'"),
        (".ctx/config.toml", "token = 'x'"),
        (".env", "A=x"),
        (".env.local", "A=x"),
        (".git/config", "[x]"),
        ("keys/server.pem", "x"),
        ("keys/deploy.txt", key),
    ] {
        std::fs::write(tools.join(name), content).unwrap();
    }
    let mut paths = vec![
        "ctx.toml",
        "./data/../ctx.toml",
        "Config/CTX.toml",
        ".ctx/config.toml",
        ".env",
        ".env.local",
        ".git/config",
        "keys/server.pem",
        "keys/deploy.txt",
    ];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../ctx.toml", tools.join("data/settings.txt")).unwrap();
        std::os::unix::fs::symlink(".git", tools.join("history")).unwrap();
        paths.extend(["data/settings.txt", "history/config"]);
    }
    for path in paths {
        let error = bench.error(&format!("return fs.read('{path}')")).await;
        assert!(error.message().contains("is a secret file, which scripts may not read"), "{path}: {error}");
    }
    for folder in [".git", ".ctx", "data/../.git"] {
        let error = bench.error(&format!("return fs.list('{folder}')")).await;
        assert!(error.message().contains("is a secret file"), "{folder}: {error}");
    }
    let files = bench.answer("return fs.list('.', '**')", json!({})).await.unwrap();
    let expected = ["data/a.json", "data/b.txt", "data/deep/c.json", "keys/deploy.txt", "x.lua"];
    assert_eq!(files, json!(expected));
}

async fn a_file_that_is_too_large_is_refused() {
    let bench = Bench::new();
    std::fs::write(bench.tools().join("large"), vec![b'x'; (8 << 20) + 1]).unwrap();
    let error = bench.error("return #fs.read('large')").await;
    assert!(error.message().ends_with("`large` is larger than 8 MiB"), "{error}");
}
