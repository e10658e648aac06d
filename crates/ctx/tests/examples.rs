//! The scripts of the example workspace, run against local stand-ins for the services they call.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{MockWebServer, RecordedRequest, TestWorkspace, http_response, http_response_with};
use serde_json::{Value, json};
use std::path::Path;

/// `bot@mycompany.com:hunter2-hunter2` in Base64.
const JIRA_AUTHORIZATION: &str = "Basic Ym90QG15Y29tcGFueS5jb206aHVudGVyMi1odW50ZXIy";
const ISSUES: &str = include_str!("fixtures/github-issues.json");
const RSS: &str = include_str!("fixtures/feed-rss.xml");
const ATOM: &str = include_str!("fixtures/feed-atom.xml");
const ETAG: &str = "W/\"33a64df5\"";

/// The example workspace, with the configuration sections from the scripts' header comments, changed so that
/// the scripts call the stand-ins.
fn example(scripts: &[&str], changes: &[(&str, &str)]) -> TestWorkspace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workspace");
    let w = TestWorkspace::copy_of(&folder);
    let mut config = w.read("ctx.toml").replace("127.0.0.1:7331", "127.0.0.1:0");
    for script in scripts {
        let text = w.read(script);
        let section = text.lines().filter_map(|line| line.strip_prefix("--   "));
        config.push_str(&format!("\n{}\n", section.collect::<Vec<_>>().join("\n")));
    }
    for (from, to) in changes {
        assert!(config.contains(from), "`{from}` is not in\n{config}");
        config = config.replace(from, to);
    }
    w.write("ctx.toml", config);
    w
}

#[test]
fn the_tools_and_agents_that_need_nothing_are_served_as_they_are() {
    let w = example(&[], &[]);
    let server = w.spawn(["up", "."]);
    let listed = server.get("/tools/list").body;
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"echo") && !names.contains(&"post_slack"), "{names:?}");
    let said = server.post("/tools/echo", &json!({"message": "hello", "times": 3}));
    assert_eq!((said.status, &said.body["result"]), (200, &json!({"message": "hello hello hello"})));
    assert_eq!(server.post("/tools/echo", &json!({"message": "hello", "times": 11})).status, 400);
    let script = "local said = sdk.tools.echo{ message = 'hi' } return said.message";
    assert_eq!(server.post("/tools/execute", &json!({"script": script})).body["result"], "hi");

    let agents = server.get("/agents/list").body;
    assert_eq!(agents["agents"][0]["name"], "incident-responder", "{agents}");
    let asked = json!({"service": "database", "severity": "SEV2"});
    let prompt = server.post("/agents/incident-responder/prompt", &asked);
    assert_eq!(prompt.status, 200, "{:?}", prompt.body);
    let system = prompt.body["system"].as_str().unwrap();
    assert!(system.contains("Database failover (document "), "{system}");
    assert_eq!(prompt.body["tools"], json!(["search", "get"]));
    assert_eq!(
        prompt.body["messages"],
        json!([{"role": "user", "content": "database has an incident, severity SEV2. What do I do first?"}])
    );
    let id = system.split("(document ").nth(1).unwrap().split(')').next().unwrap();
    assert_eq!(server.post("/tools/get", &json!({"id": id})).status, 200, "the agent can read what it names");
    let missing = server.post("/agents/incident-responder/prompt", &json!({}));
    assert_eq!(missing.body["error"]["message"], "missing required parameter: service");
    server.stop().success();
}

fn jira(asked: &RecordedRequest) -> Vec<u8> {
    if asked.header("authorization") != Some(JIRA_AUTHORIZATION) {
        return http_response(401, "Client must be authenticated to access this resource.");
    }
    match asked.json()["fields"]["project"]["key"].as_str() {
        Some("ENG") => http_response(
            201,
            r#"{"id":"10041","key":"ENG-41","self":"https://x.test/rest/api/3/issue/10041"}"#,
        ),
        _ => http_response(400, r#"{"errorMessages":[],"errors":{"project":"valid project is required"}}"#),
    }
}

#[test]
fn a_jira_ticket_is_created_with_links_to_what_belongs_to_it() {
    let web = MockWebServer::serve(jira);
    let url = web.url("");
    let w = example(&["tools/create-jira-ticket.lua"], &[("https://mycompany.atlassian.net", &url)])
        .env("JIRA_API_TOKEN", "hunter2-hunter2");
    w.ctx("sync -q").success();
    let server = w.spawn_server();
    let ticket = json!({"title": "Database failover", "body": "Try it every quarter."});
    let made = server.post("/tools/create_jira_ticket", &ticket);
    assert_eq!(
        (made.status, &made.body["result"]),
        (
            200,
            &json!({
                "success": true, "ticket_key": "ENG-41", "url": format!("{url}/browse/ENG-41"),
                "related_documents": 3, "message": "Created ENG-41: Database failover",
            })
        )
    );
    let asked = web.requests().pop().unwrap();
    assert_eq!(asked.target(), "POST /rest/api/3/issue");
    assert_eq!(asked.header("content-type"), Some("application/json"));
    let fields = &asked.json()["fields"];
    assert_eq!(
        (&fields["summary"], &fields["issuetype"], &fields["priority"]),
        (&json!("Database failover"), &json!({"name": "Task"}), &json!({"name": "Medium"}))
    );
    let texts: Vec<&str> = fields["description"]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|paragraph| paragraph["content"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts[..2], ["Try it every quarter.", "Related documents:"]);
    assert!(texts[2].starts_with("Database failover (") && texts.len() == 5, "{texts:?}");

    let plain = json!({"title": "x", "body": "y", "project": "NONE", "enrich": false});
    let refused = server.post("/tools/create_jira_ticket", &plain);
    let result = &refused.body["result"];
    assert_eq!((refused.status, &result["error"]), (200, &json!("Jira answered 400")));
    assert!(result["details"].as_str().unwrap().contains("valid project is required"), "{result}");
    let paragraphs = web.requests().pop().unwrap().json()["fields"]["description"]["content"].clone();
    assert_eq!(paragraphs.as_array().unwrap().len(), 1, "nothing is linked that was not asked for");
    server.stop().success();
}

#[test]
fn a_message_is_posted_to_slack_with_the_best_page() {
    let web = MockWebServer::serve(|asked| match asked.target() {
        "POST /services/T0/B0/s3cretpath" => http_response(200, "ok"),
        _ => http_response(404, "no_service"),
    });
    let w = example(&["tools/post-slack.lua"], &[("hooks.slack.com", "127.0.0.1")])
        .env("SLACK_WEBHOOK_URL", &web.url("/services/T0/B0/s3cretpath"));
    w.ctx("sync -q").success();
    let post = |arguments: &[&str]| {
        let test = ["tool", "test", "tools/post-slack.lua", "--json", "--param", "text=Deploy *done*"];
        w.ctx_args([&test, arguments].concat()).success().json()["result"].clone()
    };
    assert_eq!(post(&[]), json!({"posted": true, "blocks": 1}));
    let with_page = post(&["--param", "search=how do I roll back a release?"]);
    assert_eq!(with_page, json!({"posted": true, "blocks": 2}));
    let asked = web.requests();
    let section = json!({"type": "section", "text": {"type": "mrkdwn", "text": "Deploy *done*"}});
    assert_eq!(asked[0].json(), json!({"text": "Deploy *done*", "blocks": [section]}));
    let page = asked[1].json()["blocks"][1]["elements"][0]["text"].clone();
    assert!(page.as_str().unwrap().starts_with("*Roll back a release*: "), "{page}");

    let elsewhere = example(&["tools/post-slack.lua"], &[("hooks.slack.com", "127.0.0.1")])
        .env("SLACK_WEBHOOK_URL", &web.url("/services/gone"));
    let failed = elsewhere.ctx("tool test tools/post-slack.lua --param text=x").code(1);
    assert!(failed.stdout.contains("Slack answered 404: no_service"), "{}", failed.stdout);
    let forbidden = example(&["tools/post-slack.lua"], &[]).env("SLACK_WEBHOOK_URL", &web.url("/"));
    let failed = forbidden.ctx("tool test tools/post-slack.lua --param text=x").code(1);
    assert!(failed.stdout.contains("not in the script's allow_hosts"), "{}", failed.stdout);
}

/// The issues of a repository: every third is a pull request, one change per minute; `late` adds an issue
/// that changed after all others.
fn issues(count: usize, late: bool) -> Vec<Value> {
    let recorded: Vec<Value> = serde_json::from_str(ISSUES).unwrap();
    let mut issues: Vec<Value> = (1..=count)
        .map(|number| {
            let mut issue = recorded[(number - 1) % recorded.len()].clone();
            issue["number"] = json!(number);
            issue["updated_at"] = json!(format!("2026-01-07T{:02}:{:02}:00Z", number / 60, number % 60));
            issue
        })
        .collect();
    if late {
        issues[0]["title"] = json!("Couriers see the right windows");
        issues[0]["updated_at"] = json!("2026-02-01T00:00:00Z");
        issues.rotate_left(1);
    }
    issues
}

/// Responds like GitHub: changes since `since`, in pages.
fn github(asked: &RecordedRequest, issues: &[Value]) -> Vec<u8> {
    let number = |name: &str| asked.parameter(name).unwrap().parse::<usize>().unwrap();
    let since = asked.parameter("since").unwrap_or_default().replace("%3A", ":");
    let (size, page) = (number("per_page"), number("page"));
    let changed = issues.iter().filter(|issue| issue["updated_at"].as_str().unwrap() >= since.as_str());
    let shown: Vec<&Value> = changed.skip(size * (page - 1)).take(size).collect();
    http_response_with(200, &[("Content-Type", "application/json; charset=utf-8")], &json!(shown).to_string())
}

#[test]
fn issues_are_read_page_by_page_and_then_only_what_changed() {
    let early = MockWebServer::serve(|asked| github(asked, &issues(150, false)));
    let late = MockWebServer::serve(|asked| github(asked, &issues(150, true)));
    let config =
        |web: &MockWebServer| format!("token = \"${{GITHUB_TOKEN:-}}\"\napi_url = \"{}\"", web.url(""));
    let w = example(
        &["connectors/github-issues.lua"],
        &[("token = \"${GITHUB_TOKEN:-}\"", &config(&early)), ("owner/name", "larkspoke/dispatch")],
    )
    .env("GITHUB_TOKEN", "ghp_hunter2hunter2");
    assert_eq!(w.ctx("sync script:issues").success().stdout, "script:issues: 100 added\n");
    let asked = early.requests();
    assert_eq!(asked.len(), 2, "a page that is full has another after it");
    assert!(asked[0].target().starts_with("GET /repos/larkspoke/dispatch/issues?"), "{}", asked[0].line);
    assert_eq!(asked[0].header("authorization"), Some("Bearer ghp_hunter2hunter2"));
    assert_eq!((asked[0].parameter("since"), asked[1].parameter("page")), (None, Some("2")));

    let found = w.ctx("search yesterday --source script:issues --limit 1 --tag bug --json").success();
    let hit = found.json()["results"][0].clone();
    let number = hit["source_id"].as_str().unwrap();
    assert_eq!(hit["title"], format!("#{number} Couriers see yesterday's delivery windows"));
    assert_eq!(w.ctx("search Reload --source script:issues --mode keyword --json").found_ids(), [""; 0]);

    w.write("ctx.toml", w.read("ctx.toml").replace(&early.url(""), &late.url("")));
    assert_eq!(w.ctx("sync script:issues").success().stdout, "script:issues: 1 updated, 1 unchanged\n");
    assert_eq!(late.requests()[0].parameter("since"), Some("2026-01-07T02%3A30%3A00Z"));
    assert_eq!(late.requests().len(), 1);
    let renamed = w.ctx("search right --source script:issues --mode keyword --json").found_ids();
    assert_eq!(renamed, ["1"]);
    assert_eq!(w.ctx("sync script:issues").success().stdout, "script:issues: 1 unchanged\n");
    assert_eq!(late.requests()[1].parameter("since"), Some("2026-02-01T00%3A00%3A00Z"));
}

#[test]
fn a_service_that_refuses_leaves_what_is_known() {
    let web = MockWebServer::serve(|asked| match asked.header("authorization") {
        Some(_) => http_response(401, r#"{"message":"Bad credentials"}"#),
        None => github(asked, &issues(3, false)),
    });
    let url = format!("token = \"${{GITHUB_TOKEN:-}}\"\napi_url = \"{}\"", web.url(""));
    let w = example(&["connectors/github-issues.lua"], &[("token = \"${GITHUB_TOKEN:-}\"", &url)]);
    assert_eq!(w.ctx("sync script:issues").success().stdout, "script:issues: 2 added\n");
    let w = w.env("GITHUB_TOKEN", "ghp_hunter2hunter2");
    w.ctx("sync script:issues").code(1).stderr_contains("GitHub answered 401 for /repos/owner/name/issues");
    assert_eq!(w.ctx("search yesterday --source script:issues --limit 1 --json").found_ids(), ["1"]);
}

fn feed(body: &'static str) -> MockWebServer {
    MockWebServer::serve(move |asked| match asked.header("if-none-match") {
        Some(ETAG) => http_response_with(304, &[("ETag", ETAG)], ""),
        _ => http_response_with(200, &[("ETag", ETAG)], body),
    })
}

fn news(web: &MockWebServer) -> TestWorkspace {
    example(&["connectors/rss.lua"], &[("https://blog.example.com/feed.xml", &web.url("/feed.xml"))])
}

/// The documents of the feed, by `source_id`.
fn documents(w: &TestWorkspace) -> Vec<Value> {
    let mut documents = w.ctx("export").success().json()["documents"].as_array().unwrap().clone();
    documents.sort_by_key(|document| document["source_id"].to_string());
    documents
}

#[test]
fn an_rss_feed_is_read_and_asked_for_again_only_when_it_changed() {
    let web = feed(RSS);
    let w = news(&web);
    assert_eq!(w.ctx("sync script:news").success().stdout, "script:news: 2 added\n");
    let documents = documents(&w);
    let (cobbles, quiet) = (&documents[0], &documents[1]);
    assert_eq!(
        json!([cobbles["source_id"], cobbles["title"], cobbles["author"], cobbles["source_url"]]),
        json!([
            "blog-41",
            "Cobbles & cargo bikes",
            "Greta Vollmer",
            "https://blog.larkspoke.example/cobbles?from=feed&lt=1"
        ])
    );
    assert_eq!(cobbles["updated_at"], "2026-03-02T09:30:00Z");
    assert_eq!(
        json!([quiet["source_id"], quiet["title"], quiet["updated_at"]]),
        json!([
            "https://blog.larkspoke.example/quiet",
            "Tomás on \"quiet\" streets 🚲",
            "2026-03-01T08:00:00Z"
        ])
    );
    assert_eq!(w.ctx("search setts --mode keyword --source script:news --json").found_ids(), ["blog-41"]);

    w.ctx("sync script:news").success();
    let asked = web.requests();
    assert_eq!((asked[0].header("if-none-match"), asked[1].header("if-none-match")), (None, Some(ETAG)));
    assert_eq!(w.ctx("stats --json").json()["documents"], 2, "what a feed does not name stays");
}

#[test]
fn an_atom_feed_is_read_too() {
    let web = feed(ATOM);
    let w = news(&web);
    assert_eq!(w.ctx("sync script:news").success().stdout, "script:news: 2 added\n");
    let documents = documents(&w);
    let told = |document: &Value| {
        json!([document["title"], document["author"], document["source_url"], document["updated_at"]])
    };
    assert_eq!(
        told(&documents[1]),
        json!([
            "Dispatch 7 & friends",
            "Tomás",
            "https://larkspoke.example/releases/7?a=1&b=2",
            "2026-03-10T18:30:02Z"
        ])
    );
    assert_eq!(
        told(&documents[0]),
        json!(["Dispatch 6", null, "https://larkspoke.example/releases/6", "2026-02-10T18:30:02Z"])
    );
    assert_eq!(w.ctx("search freight --mode keyword --source script:news --json").found_ids().len(), 1);
}

#[test]
fn a_feed_without_an_etag_loses_no_entry_that_it_forgot() {
    let web = MockWebServer::serve(|asked| match asked.target() {
        "GET /feed.xml" => http_response(200, RSS),
        _ => http_response(200, &RSS.replace("blog-41", "blog-42")),
    });
    let w = news(&web);
    w.ctx("sync script:news").success();
    w.write("ctx.toml", w.read("ctx.toml").replace("/feed.xml", "/later.xml"));
    let again = w.ctx("sync script:news").success();
    assert_eq!(again.stdout, "script:news: 1 added, 1 unchanged\n");
    assert!(web.requests().iter().all(|asked| asked.header("if-none-match").is_none()));
}
