//! A tool's argument schema, compiled on first use. Catalogs that share a tool's entry share the compiled schema.

use crate::{ArgumentSchema, CatalogEntry};
use std::sync::{Arc, OnceLock};

/// A tool's argument schema, compiled on first use.
#[derive(Default)]
pub(crate) struct LazyArgumentSchema(OnceLock<CompiledSchema>);

struct CompiledSchema {
    schema: ArgumentSchema,
    /// Why arguments are not validated, if the schema is invalid.
    fault: Option<String>,
}

impl LazyArgumentSchema {
    fn compiled(&self, CatalogEntry { name, spec, builtin, .. }: &CatalogEntry) -> &CompiledSchema {
        self.0.get_or_init(|| {
            let schema = Arc::unwrap_or_clone(spec.input_schema.get());
            match ArgumentSchema::compile(schema) {
                Ok(schema) => {
                    let schema = schema.with_body(spec.body.clone()).with_null_as_absent(*builtin);
                    CompiledSchema { schema, fault: None }
                }
                Err(error) => {
                    let fault = format!(
                        "arguments of {name} are not validated, because its schema is invalid: {error}"
                    );
                    tracing::debug!("{fault}");
                    let schema = ArgumentSchema::unchecked(Arc::unwrap_or_clone(spec.input_schema.get()));
                    CompiledSchema { schema: schema.with_body(spec.body.clone()), fault: Some(fault) }
                }
            }
        })
    }

    /// Whether the schema is compiled already, so that [`LazyArgumentSchema::get`] is cheap.
    pub(crate) fn is_compiled(&self) -> bool {
        self.0.get().is_some()
    }

    /// The tool's schema, compiled on first use.
    pub(crate) fn get(&self, entry: &CatalogEntry) -> &ArgumentSchema {
        &self.compiled(entry).schema
    }

    /// [`LazyArgumentSchema::fault`] without keeping a schema that is compiled only for the answer.
    pub(crate) fn find_fault(&self, entry: &CatalogEntry) -> Option<String> {
        match self.is_compiled() {
            true => self.fault(entry).map(str::to_owned),
            false => Self::default().fault(entry).map(str::to_owned),
        }
    }

    /// Why arguments are not validated, if the schema is invalid.
    pub(crate) fn fault(&self, entry: &CatalogEntry) -> Option<&str> {
        self.compiled(entry).fault.as_deref()
    }
}
