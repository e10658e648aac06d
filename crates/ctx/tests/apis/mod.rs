//! APIs with an OpenAPI description: on the command line and in the configuration, called, listed and
//! documented.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper fails the test it helps")]

mod client;

pub(crate) use client::StdioSession;
use ctx_testkit::{
    MockWebServer, RecordedRequest, TestWorkspace, http_response, http_response_with, official_server,
    wait_until,
};
use serde_json::{Value, json};
use std::sync::Mutex;

/// The path of the description, which has a relative server URL.
const SPEC: &str = "/api/v3/openapi.json";

/// The API key that deleting requires.
const KEY: &str = "kennel-key-4711";

/// A pet store that stores its pets.
fn petstore() -> MockWebServer {
    let pets: Mutex<Vec<Value>> = Mutex::default();
    let json = |status: u16, value: &Value| {
        http_response_with(status, &[("Content-Type", "application/json")], &value.to_string())
    };
    MockWebServer::serve(move |asked: &RecordedRequest| {
        let mut pets = pets.lock().unwrap();
        let target = asked.target();
        let (path, _) = target.split_once('?').unwrap_or((target, ""));
        match path {
            "GET /api/v3/openapi.json" => {
                http_response_with(200, &[("ETag", "\"1\"")], include_str!("petstore.json"))
            }
            "POST /api/v3/pets" => {
                let mut pet = asked.json();
                pet["id"] = json!(pets.len() + 1);
                pets.push(pet.clone());
                json(201, &pet)
            }
            "GET /api/v3/pets" => {
                let number = |name: &str| asked.parameter(name).map(|value| value.parse::<usize>().unwrap());
                let (limit, page) = (number("limit").unwrap_or(2), number("page").unwrap_or(1));
                json(200, &pets.iter().skip((page - 1) * limit).take(limit).cloned().collect())
            }
            "DELETE /api/v3/pets/1" if asked.header("x-api-key") == Some(KEY) => http_response(204, ""),
            "DELETE /api/v3/pets/1" => json(403, &json!({"message": "no", "key": asked.header("x-api-key")})),
            _ => match path.strip_prefix("GET /api/v3/pets/").and_then(|id| id.parse::<usize>().ok()) {
                Some(id) if (1..=pets.len()).contains(&id) => json(200, &pets[id - 1]),
                _ => json(404, &json!({"message": "there is no such pet"})),
            },
        }
    })
}

fn api_argument(store: &MockWebServer) -> String {
    format!("petstore={}", store.url(SPEC))
}

/// A workspace with the store in `[apis]`.
fn with_configured_api(store: &MockWebServer, more: &str) -> TestWorkspace {
    let spec = store.url(SPEC);
    let server = "[server]\nbind = \"127.0.0.1:0\"\n";
    TestWorkspace::empty().config(&format!("{server}[apis.petstore]\nspec = \"{spec}\"\n{more}"))
}

#[test]
fn a_description_that_is_typed_is_called_and_documented() {
    let store = petstore();
    let w = TestWorkspace::empty();
    let mut client = StdioSession::start(&w, &["run", &api_argument(&store)]);
    let pet = client.execute(
        "local pet = sdk.petstore.create_pet({ name = \"Rex\", tag = { id = 1, name = \"dog\" } })\n\
         return sdk.petstore.get_pet({ petId = pet.id })",
    );
    assert_eq!(pet["structuredContent"]["name"], "Rex", "{pet}");
    let docs = client.text("get_function_docs", json!({"name": "petstore.create_pet"}));
    assert!(
        docs.starts_with(
            "-- Create a new pet\n-- @param body - The pet to create\n\
             function sdk.petstore.create_pet(body: NewPet): Pet end\n\n\
             export type NewPet = {\n    name: string,\n    tag: Tag?,\n}\n\n\
             export type Pet = {\n    id: number,\n    name: string,\n    owner: User?,\n    tag: Tag?,\n}\n"
        ),
        "{docs}"
    );
    for named in ["User", "Tag"] {
        assert_eq!(
            docs.matches(&format!("export type {named} = {{\n    id: number,\n    name: string,\n")).count(),
            1
        );
    }
    let found = client.text("search_docs", json!({"query": "remove an animal"}));
    assert!(found.contains("petstore.delete_pet(petId)"), "{found}");
    client.end();
}

#[test]
fn one_script_uses_an_api_and_an_mcp_server() {
    let store = petstore();
    let w = TestWorkspace::empty();
    let files = official_server("server-filesystem");
    let files = format!("filesystem=node '{}' '{}'", files.display(), w.root().display());
    let mut client = StdioSession::start(&w, &["run", &api_argument(&store), "--mcp", &files]);
    let script = format!(
        "for _, name in {{ \"Rex\", \"Tom\", \"Ada\" }} do sdk.petstore.create_pet({{ name = name }}) end\n\
         local names = {{}}\n\
         for pet in paginate(sdk.petstore.list_pets, {{ limit = 2 }}) do table.insert(names, pet.name) end\n\
         local path = \"{}/pets.txt\"\n\
         sdk.filesystem.write_file({{ path = path, content = table.concat(names, \",\") }})\n\
         return sdk.filesystem.read_text_file({{ path = path }}).content",
        w.root().display()
    );
    let answer = client.execute(&script);
    assert_eq!(answer["content"][0]["text"], "Rex,Tom,Ada", "{answer}");
    assert_eq!(w.read("pets.txt"), "Rex,Tom,Ada");
    let mistake =
        client.execute("sdk.filesystem.write_file({})\nreturn sdk.petstore.create_pet({ nmae = 1 })");
    let told = mistake["content"][0]["text"].as_str().unwrap();
    assert!(told.contains("nothing was called") && told.contains("1:") && told.contains("2:"), "{told}");
    client.end();
}

#[test]
fn a_key_is_sent_where_it_is_asked_for_and_shown_nowhere() {
    let store = petstore();
    let delete = "return sdk.petstore.delete_pet({ petId = 1 })";
    let w = TestWorkspace::empty().env("KENNEL", KEY);
    let mut client = StdioSession::start(&w, &["run", &api_argument(&store)]);
    let refused = client.execute(delete).to_string();
    assert!(refused.contains("needs credentials that are not configured: `api_key`"), "{refused}");
    let of_caller = json!({"script": delete});
    let meta = json!({"auth": {"petstore": {"type": "api_key", "key": "wrong-key-0815"}}});
    let wrong = client.call(json!({"name": "execute", "arguments": of_caller, "_meta": meta})).to_string();
    assert!(wrong.contains("HTTP 403") && !wrong.contains("wrong-key-0815"), "{wrong}");
    client.end();

    let mut client = StdioSession::start(&w, &["run", &api_argument(&store), "--auth", "petstore:KENNEL"]);
    let gone = client.execute(delete);
    assert_eq!(gone["isError"], json!(false), "{gone}");
    client.end();
    let sent: Vec<_> =
        store.requests().iter().map(|asked| asked.header("x-api-key").map(str::to_owned)).collect();
    assert_eq!(sent.iter().flatten().collect::<Vec<_>>(), ["wrong-key-0815", KEY], "{sent:?}");
    w.ctx_args(["run", &api_argument(&store), "--auth", "petstore:NOT_SET"])
        .code(2)
        .stderr_contains("NOT_SET");
    w.ctx_args(["run", &api_argument(&store), "--auth", "kennel:KENNEL"]).code(2).stderr_contains("kennel");
}

#[test]
fn a_configured_api_is_listed_tested_doctored_and_documented() {
    let store = petstore();
    let w = with_configured_api(&store, "exclude = [\"tag:admin\"]\n");
    w.ctx("upstream list").success().stdout_contains("petstore").stdout_contains("3 functions");
    w.ctx("upstream test petstore")
        .success()
        .stdout_contains("✓ Petstore was read")
        .stdout_contains("petstore.create_pet");
    w.ctx("doctor").success().stdout_contains("✓ apis.petstore: 3 functions");
    w.ctx("upstream test petstor").code(2).stderr_contains("did you mean the API `petstore`?");
    w.ctx("docs petstore.get_pet")
        .success()
        .stdout_contains("function sdk.petstore.get_pet(params: { petId: number }): Pet end");
    w.write("new.luau", "return sdk.petstore.create_pet{ name = \"Rex\" }.id");
    w.ctx("exec new.luau").success().stdout_contains("1");
    w.write("gone.luau", "return sdk.petstore.delete_pet{ petId = 1 }");
    w.ctx("exec gone.luau").code(2).stderr_contains("petstore has no function `delete_pet`");
}

#[test]
fn a_description_that_cannot_be_read_is_told_and_the_rest_works() {
    let w = TestWorkspace::empty()
        .config(
            "[apis.broken]\nspec = \"broken.yaml\"\n[apis.gone]\nspec = \"gone.yaml\"\n\
             [apis.part]\nspec = \"part.yaml\"\nbase_url = \"http://127.0.0.1:1\"\n",
        )
        .file("broken.yaml", "openapi: 3.0.0\npaths:\n  /a:\n   get: {\n  /b: 1\n")
        .file("part.yaml", "openapi: 3.0.0\npaths:\n  /a: {get: {operationId: a}, post: 1}\n");
    let doctor = w.ctx("doctor").code(1);
    doctor
        .stdout_contains("broken.yaml: line ")
        .stdout_contains("there is no file")
        .stdout_contains("POST /a is left out: it is not an object");
    w.write(
        "a.luau",
        "local ok, why = pcall(sdk.broken.x)\nreturn tostring(why) .. \"; \" .. tostring(pcall(sdk.part.a))",
    );
    w.ctx("exec a.luau")
        .success()
        .stdout_contains("broken cannot be called: its description cannot be read: line ");
}

#[test]
fn a_description_is_cached_and_a_hanging_server_delays_nothing() {
    let w = {
        let store = petstore();
        let w = with_configured_api(&store, "");
        w.ctx("docs petstore.get_pet").success();
        w
    };
    // The API's server is stopped, but its description is cached.
    w.ctx("docs petstore.get_pet").success().stdout_contains("sdk.petstore.get_pet");

    let hanging = MockWebServer::serve(|_| {
        std::thread::sleep(std::time::Duration::from_secs(30));
        http_response(200, "")
    });
    let typed = format!("slow={}", hanging.url("/openapi.json"));
    let mut client = StdioSession::start(&TestWorkspace::empty(), &["run", &typed]);
    assert_eq!(client.execute("return 1")["content"][0]["text"], "1");
    let listed = client.text("list_functions", json!({}));
    assert!(listed.contains("slow – is not known yet: its description is being read"), "{listed}");
    client.end();
}

#[test]
fn exposed_functions_are_listed_as_tools() {
    let store = petstore();
    let server =
        with_configured_api(&store, "expose = true\ninclude = [\"create_*\", \"get_*\"]\n").spawn_server();
    let tools = || server.get("/tools/list").body.to_string();
    wait_until("its functions are listed", || tools().contains("petstore__create_pet"));
    assert!(!tools().contains("petstore__list_pets"));
    let made = server.post("/tools/petstore__create_pet", &json!({"name": "Rex"}));
    assert_eq!(made.body["result"]["id"], 1, "{:?}", made.body);
    let missing = server.post("/tools/petstore__get_pet", &json!({"petId": 9}));
    assert_eq!(missing.body["error"]["code"], "tool_error");
    let message = missing.body["error"]["message"].as_str().unwrap();
    assert!(message.contains("HTTP 404 Not Found: {\"message\":\"there is no such pet\"}"), "{message}");
    server.stop().success();
}
