//! `ctx generate`: the manifest and the types that are generated from an OpenAPI description.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a helper fails the test it helps")]

use ctx_testkit::{TestWorkspace, ctx_snapshot, github_description, luau_check};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PETSTORE: &str = include_str!("fixtures/petstore.yaml");

fn with_petstore() -> TestWorkspace {
    TestWorkspace::empty().file("petstore.yaml", PETSTORE)
}

/// All files below a folder, by their paths.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                all.insert(name, fs::read(path).unwrap());
            }
        }
    }
    all
}

#[test]
fn a_description_becomes_a_manifest_and_types() {
    let w = with_petstore();
    w.ctx("generate petstore.yaml -o out").success();
    let module = fs::read_to_string(w.path("out/sdk/petstore.luau")).unwrap();
    full_moon::parse(&module).unwrap();
    insta::assert_snapshot!(module, @r#"
    --!strict
    -- Functions of `sdk.petstore` and their types. Petstore
    -- Written by `ctx generate`, which writes it anew: changes are lost.

    --- An animal to be sold.
    export type Pet = {
        id: number,
        --- What it is called.
        name: string,
        status: Status?,
        tags: {Tag}?,
    }

    --- An animal to be sold.
    export type PetInput = {
        --- What it is called.
        name: string,
        status: Status?,
        tags: {Tag}?,
    }

    export type Status = ("available" | "sold")

    export type Tag = {
        name: string,
    }

    export type Functions = {
        --- List pets
        --- @param limit - How many at most. Default: `20`.
        list_pets: (params: { limit: number?, status: Status? }?) -> {Pet},
        --- Create a pet
        create_pet: (body: PetInput) -> Pet,
        --- One pet
        ---
        --- Deprecated.
        get_pet: (params: { petId: number }) -> Pet,
        --- DELETE /pets/{petId}
        delete_pet: (params: { petId: number }) -> nil,
    }

    return (nil :: any) :: Functions
    "#);
    let manifest: Value = serde_json::from_slice(&fs::read(w.path("out/manifest.json")).unwrap()).unwrap();
    let api = &manifest["apis"][0];
    assert_eq!(
        (&manifest["format"], &api["name"], &api["title"]),
        (&json!(1), &json!("petstore"), &json!("Petstore"))
    );
    assert_eq!((&api["spec"], &api["file"]), (&json!("petstore.yaml"), &json!("sdk/petstore.luau")));
    assert_eq!(
        api["$defs"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["Pet", "PetInput", "Status", "Tag"]
    );
    let getting = json!({
        "name": "sdk.petstore.get_pet", "title": "One pet", "description": "One pet\n\nDeprecated.",
        "method": "GET", "path": "/pets/{petId}", "tags": [], "deprecated": true,
        "annotations": {"read_only": true, "destructive": false, "idempotent": true, "open_world": true},
        "input_schema": {
            "type": "object", "properties": {"petId": {"type": "integer"}}, "required": ["petId"],
            "additionalProperties": false,
        },
        "output_schema": {"$ref": "#/$defs/Pet"},
    });
    assert_eq!(api["functions"][2], getting);
}

#[test]
fn the_same_again_changes_nothing_and_other_files_are_left_alone() {
    let w = with_petstore().file("out/sdk/mine.luau", "return 1\n").file("out/notes.txt", "mine");
    w.ctx("generate petstore.yaml pets=petstore.yaml -o out").success();
    let first = files(&w.path("out"));
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["manifest.json", "notes.txt", "sdk.d.luau", "sdk/mine.luau", "sdk/pets.luau", "sdk/petstore.luau"]
    );
    w.ctx("generate petstore.yaml pets=petstore.yaml -o out").success();
    assert_eq!(files(&w.path("out")), first);
    w.ctx("generate petstore.yaml pets=petstore.yaml -o other").success();
    assert_eq!(fs::read(w.path("other/manifest.json")).unwrap(), first["manifest.json"]);
}

#[test]
fn definitions_declare_every_global_of_a_script() {
    let w = with_petstore();
    w.ctx("generate petstore.yaml -o out").success();
    let text = fs::read_to_string(w.path("out/sdk.d.luau")).unwrap();
    assert!(text.contains("    petstore: petstore_Functions,\n"), "{text}");
    for global in ["http: {", "json: {", "log: {", "context: {", "function sleep(", "sdk: {"] {
        assert_eq!(text.matches(&format!("declare {global}")).count(), 1, "{global}\n{text}");
    }
}

#[test]
fn a_description_that_cannot_be_read_is_named_and_nothing_is_written() {
    let w = with_petstore().file("broken.yaml", "openapi: 3.0.0\ninfo: [");
    let outcome = w.ctx("generate petstore.yaml broken.yaml missing.json -o out").code(1);
    outcome
        .stderr_contains("error: broken.yaml cannot be read: ")
        .stderr_contains("error: missing.json cannot be read: ");
    assert!(!w.path("out").exists());
}

#[test]
fn two_of_one_name_are_refused() {
    let w = with_petstore();
    ctx_snapshot!(w.ctx("generate petstore.yaml other/petstore.json -o out"), @r"
    exit_code: 2
    ----- stdout -----

    ----- stderr -----
    error: two descriptions have the name petstore
    hint: give one of them another name: `other=PATH`
    ");
}

#[test]
fn operations_that_are_left_out_are_told_and_counted() {
    let mut text = "openapi: 3.0.0\ninfo: {title: Many, version: '1'}\npaths:\n".to_owned();
    for number in 0..13 {
        text += &format!(
            "  /x/{number}:\n    get: {{operationId: x{number}, responses: 7, parameters: {{}}}}\n    post: 7\n"
        );
    }
    let w = TestWorkspace::empty().file("many.yaml", &text);
    let outcome = w.ctx("generate many.yaml -o out").success();
    let manifest: Value = serde_json::from_slice(&fs::read(w.path("out/manifest.json")).unwrap()).unwrap();
    let skipped = manifest["apis"][0]["skipped"].as_array().unwrap();
    assert!(skipped.len() > 10, "{skipped:?}");
    let told = outcome.stderr.lines().filter(|line| line.starts_with("warning: many: ")).count();
    assert_eq!(told, 11, "{}", outcome.stderr);
}

/// The errors that the Luau type checker reports for a script.
fn checked(w: &TestWorkspace, script: &str) -> Vec<String> {
    fs::write(w.path("out/script.luau"), script).unwrap();
    let output =
        luau_check().args(["sdk.d.luau", "script.luau"]).current_dir(w.path("out")).output().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.success(), report.is_empty(), "{report}");
    report.lines().map(str::to_owned).collect()
}

#[test]
fn a_type_checker_accepts_right_calls_and_refuses_wrong_ones() {
    let w = with_petstore();
    w.ctx("generate petstore.yaml -o out").success();
    let right = "--!strict\n\
        local pet = sdk.petstore.create_pet({ name = \"Rex\", tags = { { name = \"x\" } } })\n\
        local first: petstore_Pet = sdk.petstore.list_pets()[1]\n\
        log.info(pet.id + first.id, first.name)\n\
        return sdk.files.read_file({ path = \"of a server\" })\n";
    assert_eq!(checked(&w, right), [""; 0]);
    for wrong in [
        "sdk.petstore.create_pet({ name = 7 })",
        "sdk.petstore.creat_pet({})",
        "sdk.petstore.get_pet({})",
        "sdk.petstore.list_pets({ limit = \"many\" })",
        "sdk.petstore.list_pets({ status = \"lost\" })",
        "log.info(sdk.petstore.get_pet({ petId = 1 }).nam)",
    ] {
        assert!(!checked(&w, &format!("--!strict\n{wrong}\n")).is_empty(), "{wrong}");
    }
    let module = fs::read_to_string(w.path("out/sdk/petstore.luau")).unwrap();
    assert_eq!(checked(&w, &module), [""; 0]);
    let calling = |call: &str| {
        module.replace(
            "return (nil :: any) :: Functions",
            &format!("return ((nil :: any) :: Functions).{call}"),
        )
    };
    assert_eq!(checked(&w, &calling("get_pet({ petId = 1 }).name")), [""; 0]);
    assert!(!checked(&w, &calling("get_pet({ petId = true }).name")).is_empty());
}

#[test]
fn a_type_checker_accepts_what_is_written_of_a_large_api() {
    let w = TestWorkspace::empty();
    let description = github_description();
    w.ctx(&format!("generate github={} -o out", description.display())).success();
    let right = "--!strict\nlocal repo = sdk.github.repos_get({ owner = \"a\", repo = \"b\" })\n\
        local name: string = repo.full_name\nreturn name\n";
    assert_eq!(checked(&w, right), [""; 0]);
    assert!(!checked(&w, &right.replace("name: string", "name: number")).is_empty());
    assert!(!checked(&w, &right.replace("repos_get", "repos_gett")).is_empty());
    let module = fs::read_to_string(w.path("out/sdk/github.luau")).unwrap();
    assert_eq!(checked(&w, &module), [""; 0]);
}
