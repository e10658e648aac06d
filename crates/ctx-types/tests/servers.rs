//! Documentation of functions: those of a pet store, and of MCP servers that are in use.

use crate::common::assert_sound;
use ctx_core::{BodyArgument, Identifier, ToolName, ToolSpec};
use ctx_types::Function;
use serde_json::{Value, json};

fn of(provider: &str, name: &str, description: &str, input: Value, output: Value) -> Function {
    let mut spec = ToolSpec::new(name, description, input);
    spec.output_schema = (!output.is_null()).then_some(output.into());
    let name = ToolName::new(Identifier::sanitize(provider), Identifier::sanitize(name));
    let body = BodyArgument { name: "body".to_owned(), has_fields: true };
    spec.body = (provider == "petstore").then_some(body);
    let function = Function::of(&name, &spec);
    assert_sound(&function);
    function
}

fn pets() -> Value {
    json!({"schemas": {
        "NewPet": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "tag": {"$ref": "#/components/schemas/Tag"}},
            "required": ["name"],
        },
        "Pet": {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "name": {"type": "string"},
                "owner": {"$ref": "#/components/schemas/User"},
                "tag": {"$ref": "#/components/schemas/Tag"},
            },
            "required": ["id", "name"],
        },
        "User": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "name": {"type": "string"}, "email": {"type": "string"}},
            "required": ["id", "name", "email"],
        },
        "Tag": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
            "required": ["id", "name"],
        },
        "Order": {"type": "object"},
    }})
}

#[test]
fn a_function_is_documented_with_every_type_it_reaches() {
    let body = json!({"$ref": "#/components/schemas/NewPet", "description": "The pet to create"});
    let create_pet = of(
        "petstore",
        "create_pet",
        "Create a new pet",
        json!({"type": "object", "properties": {"body": body}, "required": ["body"], "components": pets()}),
        json!({"$ref": "#/components/schemas/Pet", "components": pets()}),
    );
    insta::assert_snapshot!(create_pet.declaration(), @"
    -- Create a new pet
    -- @param body - The pet to create
    function sdk.petstore.create_pet(body: NewPet): Pet end

    export type NewPet = {
        name: string,
        tag: Tag?,
    }

    export type Pet = {
        id: number,
        name: string,
        owner: User?,
        tag: Tag?,
    }

    export type Tag = {
        id: number,
        name: string,
    }

    export type User = {
        id: number,
        name: string,
        email: string,
    }
    ");
    insta::assert_snapshot!(create_pet.signature(), @"create_pet(body: NewPet): Pet");
    assert_eq!(create_pet.names(), ["name", "tag", "NewPet", "Pet", "id", "owner", "Tag", "User", "email"]);
    assert!(!create_pet.has_no_required_arguments());
}

#[test]
fn a_body_stands_beside_the_other_parameters() {
    let pet =
        json!({"type": "object", "properties": {"name": {"type": "string", "description": "Its new name."}}});
    let update_pet = of(
        "petstore",
        "update_pet",
        "Change a pet",
        json!({
            "type": "object",
            "properties": {"pet_id": {"type": "integer", "description": "Which one."}, "body": pet},
            "required": ["pet_id"],
        }),
        json!({"type": "null"}),
    );
    insta::assert_snapshot!(update_pet.declaration(), @"
    -- Change a pet
    -- @param pet_id - Which one.
    -- @param body.name - Its new name.
    function sdk.petstore.update_pet(params: { pet_id: number }, body: { name: string? }?): nil end
    ");
}

#[test]
fn tools_of_the_filesystem_server() {
    let content = json!({
        "type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"],
        "additionalProperties": false,
    });
    let edit = json!({
        "type": "object",
        "properties": {
            "oldText": {"type": "string", "description": "What to look for."},
            "newText": {"type": "string", "description": "What to put there."},
        },
        "required": ["oldText", "newText"],
    });
    let edit_file = of(
        "filesystem",
        "edit_file",
        "Change lines of a text file.\nAnswers with a diff.",
        json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "edits": {"type": "array", "items": edit},
                "dryRun": {"default": false, "description": "Only show the diff.", "type": "boolean"},
            },
            "required": ["path", "edits"],
        }),
        content.clone(),
    );
    insta::assert_snapshot!(edit_file.declaration(), @"
    -- Change lines of a text file.
    -- Answers with a diff.
    -- @param edits[].oldText - What to look for.
    -- @param edits[].newText - What to put there.
    -- @param dryRun - Only show the diff. (default false)
    function sdk.filesystem.edit_file(params: { path: string, edits: {{ oldText: string, newText: string }}, dryRun: boolean? }): { content: string } end
    ");

    let media = json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["image", "audio"]},
            "data": {"type": "string"},
            "mimeType": {"type": "string"},
        },
        "required": ["type", "data", "mimeType"],
        "additionalProperties": false,
    });
    let resource = json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "const": "resource"},
            "resource": {
                "type": "object",
                "properties": {
                    "uri": {"type": "string"}, "mimeType": {"type": "string"}, "blob": {"type": "string"},
                },
                "required": ["uri", "blob"],
                "additionalProperties": false,
            },
        },
        "required": ["type", "resource"],
        "additionalProperties": false,
    });
    let path = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let read_media_file = of(
        "filesystem",
        "read_media_file",
        "Read an image or a sound.",
        path,
        json!({
            "type": "object",
            "properties": {"content": {"type": "array", "items": {"anyOf": [media, resource]}}},
            "required": ["content"],
            "additionalProperties": false,
        }),
    );
    insta::assert_snapshot!(read_media_file.declaration(), @r#"
    -- Read an image or a sound.
    function sdk.filesystem.read_media_file(params: { path: string }): { content: {{ type: ("image" | "audio"), data: string, mimeType: string } | { type: "resource", resource: { uri: string, mimeType: string?, blob: string } }} } end
    "#);

    let nothing = json!({"type": "object", "properties": {}});
    let allowed = of("filesystem", "list_allowed_directories", "", nothing, content);
    insta::assert_snapshot!(allowed.declaration(), @"function sdk.filesystem.list_allowed_directories(): { content: string } end");
}

#[test]
fn tools_of_the_memory_server() {
    let relation = json!({
        "type": "object",
        "properties": {
            "from": {"type": "string", "description": "Where it starts."},
            "to": {"type": "string", "description": "Where it ends."},
            "relationType": {"type": "string"},
        },
        "required": ["from", "to", "relationType"],
    });
    let relations = json!({
        "type": "object",
        "properties": {"relations": {"type": "array", "items": relation, "description": "All of them."}},
        "required": ["relations"],
    });
    let create_relations = of("memory", "create_relations", "Relate entities.", relations.clone(), relations);
    insta::assert_snapshot!(create_relations.declaration(), @"
    -- Relate entities.
    -- @param relations - All of them.
    -- @param relations[].from - Where it starts.
    -- @param relations[].to - Where it ends.
    -- @return relations - All of them.
    -- @return relations[].from - Where it starts.
    -- @return relations[].to - Where it ends.
    function sdk.memory.create_relations(params: { relations: {{ from: string, to: string, relationType: string }} }): { relations: {{ from: string, to: string, relationType: string }} } end
    ");
}

#[test]
fn tools_of_the_server_of_everything() {
    let message = of(
        "everything",
        "get-annotated-message",
        "Show annotations.",
        json!({
            "type": "object",
            "properties": {
                "messageType": {"type": "string", "enum": ["error", "success", "debug"], "description": "Which kind."},
                "includeImage": {"default": false, "type": "boolean"},
            },
            "required": ["messageType"],
        }),
        Value::Null,
    );
    insta::assert_snapshot!(message.declaration(), @r#"
    -- Show annotations.
    -- @param messageType - Which kind.
    -- @param includeImage - default false
    function sdk.everything.get_annotated_message(params: { messageType: ("error" | "success" | "debug"), includeImage: boolean? }): any end
    "#);
    let gzip = of(
        "everything",
        "gzip-file-as-resource",
        "Compress a file.",
        json!({
            "type": "object",
            "properties": {
                "name": {"default": "README.md.gz", "type": "string"},
                "data": {"default": "https://example.com/README.md", "type": "string", "format": "uri"},
                "outputType": {"default": "resourceLink", "type": "string", "enum": ["resourceLink", "resource"]},
            },
        }),
        Value::Null,
    );
    insta::assert_snapshot!(gzip.declaration(), @r#"
    -- Compress a file.
    -- @param name - default "README.md.gz"
    -- @param data - uri; default "https://example.com/README.md"
    -- @param outputType - default "resourceLink"
    function sdk.everything.gzip_file_as_resource(params: { name: string?, data: string?, outputType: ("resourceLink" | "resource")? }?): any end
    "#);
}
