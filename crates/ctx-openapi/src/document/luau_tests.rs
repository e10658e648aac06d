//! Tests: the Luau declarations of operations.

use super::{Description, RootLocation, SingleDocument, load};
use crate::operation::Operation;
use ctx_core::{BodyArgument, Identifier, ToolName, ToolSpec};
use ctx_types::Function;

/// A description with every kind of schema.
const SHOP: &str = r##"
openapi: 3.1.0
info: {title: Shop, version: '1'}
paths:
  /pets:
    post:
      operationId: createPet
      summary: Create a new pet
      requestBody:
        required: true
        description: The pet to create
        content: {application/json: {schema: {$ref: '#/components/schemas/NewPet'}}}
      responses:
        '201':
          description: The pet
          content: {application/json: {schema: {$ref: '#/components/schemas/Pet'}}}
  /owners/{owner_id}/pets/{pet_id}:
    patch:
      operationId: updatePet
      summary: Change a pet
      deprecated: true
      parameters:
        - {name: owner_id, in: path, required: true, schema: {type: integer}, description: Whose pet it is}
        - {name: pet_id, in: path, required: true, schema: {type: string, format: uuid}}
        - {name: notify, in: query, schema: {type: boolean}, deprecated: true}
      requestBody:
        content:
          application/json:
            schema:
              type: object
              properties:
                name: {type: [string, 'null']}
                home:
                  type: object
                  required: [address]
                  properties:
                    address:
                      type: object
                      properties:
                        street: {type: string}
                        location:
                          type: object
                          properties:
                            coordinates: {type: array, prefixItems: [{type: number}, {type: number}], description: Where it is}
      responses:
        '204': {description: Done}
  /pets/{pet_id}/tags:
    put:
      operationId: setTags
      parameters:
        - {name: pet_id, in: path, required: true, schema: {type: string}}
      requestBody:
        required: true
        content: {application/json: {schema: {type: array, items: {type: string}}}}
      responses:
        '200':
          description: All of them, by how often they are used
          content: {application/json: {schema: {type: object, additionalProperties: {type: integer}}}}
  /notes:
    post:
      operationId: addNote
      requestBody:
        required: true
        content:
          application/json:
            schema:
              type: object
              required: [title]
              properties: {title: {type: string}, body: {type: string, description: What it says}}
      responses:
        default: {description: Anything}
components:
  schemas:
    NewPet:
      type: object
      required: [name, animal]
      properties:
        name: {type: string, description: What it is called}
        animal: {$ref: '#/components/schemas/Animal'}
        tag: {$ref: '#/components/schemas/Tag'}
        size: {type: string, enum: [small, large], deprecated: true}
        weight: {anyOf: [{type: number}, {type: string}], default: 1}
        parents: {type: array, maxItems: 2, items: {$ref: '#/components/schemas/Pet'}}
    Pet:
      allOf:
        - {$ref: '#/components/schemas/NewPet'}
        - type: object
          required: [id]
          properties:
            id: {type: integer, readOnly: true}
            seen: {type: string, format: date-time}
    Animal:
      oneOf: [{$ref: '#/components/schemas/Cat'}, {$ref: '#/components/schemas/Dog'}]
      discriminator:
        propertyName: kind
        mapping: {feline: '#/components/schemas/Cat'}
    Cat: {type: object, required: [kind], properties: {kind: {type: string}, lives: {type: integer, minimum: 0}}}
    Dog: {type: object, required: [kind], properties: {kind: {type: string}, tricks: {type: object, additionalProperties: {type: boolean}}}}
    Tag: {type: object, properties: {name: {type: string}}}
"##;

fn declaration(name: &str) -> String {
    let shop: Description =
        load(SHOP, RootLocation::Directory("shop.yaml".to_owned()), &SingleDocument).unwrap();
    let operation: &Operation = shop.operations.iter().find(|operation| operation.name == name).unwrap();
    let body = operation.body.as_ref();
    let spec = ToolSpec {
        output_schema: shop.output_schema(operation).map(Into::into),
        body: body.map(|body| BodyArgument { name: body.argument.clone(), has_fields: body.has_fields }),
        ..ToolSpec::new(name, operation.description.clone(), shop.input_schema(operation))
    };
    let name = ToolName::new(Identifier::sanitize("shop"), Identifier::sanitize(name));
    Function::of(&name, &spec).declaration()
}

#[test]
fn an_operation_is_declared_with_every_referenced_type() {
    insta::assert_snapshot!(declaration("create_pet"), @r#"
    -- Create a new pet
    -- @param body - The pet to create
    function sdk.shop.create_pet(body: NewPet): Pet_2 end

    export type NewPet = {
        -- What it is called
        name: string,
        animal: Animal,
        tag: Tag?,
        -- deprecated
        size: ("small" | "large")?,
        -- Default: `1`.
        weight: (number | string)?,
        parents: {Pet}?,
    }

    export type Pet_2 = NewPet_2 & {
        id: number,
        -- date-time
        seen: string?,
    }

    -- by kind: "feline" is Cat, "Dog" is Dog
    export type Animal = Cat | Dog

    export type Tag = {
        name: string?,
    }

    export type Pet = NewPet & {
        -- date-time
        seen: string?,
    }

    export type NewPet_2 = {
        -- What it is called
        name: string,
        animal: Animal,
        tag: Tag?,
        -- deprecated
        size: ("small" | "large")?,
        -- Default: `1`.
        weight: (number | string)?,
        parents: {Pet_2}?,
    }

    export type Cat = {
        kind: string,
        lives: number?,
    }

    export type Dog = {
        kind: string,
        tricks: { [string]: boolean }?,
    }
    "#);
}

#[test]
fn nested_objects_are_declared_at_any_depth() {
    insta::assert_snapshot!(declaration("update_pet"), @r#"
    -- Change a pet
    --
    -- Deprecated.
    -- @param owner_id - Whose pet it is
    -- @param pet_id - uuid
    -- @param notify - deprecated
    -- @param body.home.address.location.coordinates - Where it is (in this order: number, number)
    function sdk.shop.update_pet(params: { owner_id: number, pet_id: string, notify: boolean? }, body: { name: string?, home: { address: { street: string?, location: { coordinates: {number}? }? } }? }?): nil end
    "#);
}

#[test]
fn lists_and_maps_are_declared_as_such() {
    insta::assert_snapshot!(declaration("set_tags"), @r#"
    -- PUT /pets/{pet_id}/tags
    function sdk.shop.set_tags(params: { pet_id: string }, body: {string}): { [string]: number } end
    "#);
}

#[test]
fn a_body_with_a_field_called_body_has_another_name() {
    insta::assert_snapshot!(declaration("add_note"), @r#"
    -- POST /notes
    -- @param request_body.body - What it says
    function sdk.shop.add_note(request_body: { title: string, body: string? }): any end
    "#);
}
