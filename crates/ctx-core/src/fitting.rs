//! Arguments are made to fit a tool: its schema is compiled once, however many catalogs have it.

use crate::{ArgumentSchema, Entry};
use std::sync::{Arc, OnceLock};

/// What fits arguments to a tool: its schema, compiled once.
#[derive(Default)]
pub(crate) struct Fitting(OnceLock<Compiled>);

struct Compiled {
    schema: ArgumentSchema,
    /// Why arguments are not checked, where they are not.
    fault: Option<String>,
}

impl Fitting {
    fn compiled(&self, Entry { name, spec, builtin, .. }: &Entry) -> &Compiled {
        self.0.get_or_init(|| {
            let schema = Arc::unwrap_or_clone(spec.input_schema.get());
            match ArgumentSchema::compile(schema) {
                Ok(schema) => {
                    let schema = schema.with_body(spec.body.clone()).taking_null_for_absent(*builtin);
                    Compiled { schema, fault: None }
                }
                Err(error) => {
                    let fault = format!("arguments of {name} are not checked, its schema is faulty: {error}");
                    tracing::debug!("{fault}");
                    let schema = ArgumentSchema::unchecked(Arc::unwrap_or_clone(spec.input_schema.get()));
                    Compiled { schema: schema.with_body(spec.body.clone()), fault: Some(fault) }
                }
            }
        })
    }

    /// Whether the schema is already compiled, so that [`Fitting::schema`] does not have to.
    pub(crate) fn is_compiled(&self) -> bool {
        self.0.get().is_some()
    }

    /// The schema of a tool; compiled when it is first asked for.
    pub(crate) fn schema(&self, entry: &Entry) -> &ArgumentSchema {
        &self.compiled(entry).schema
    }

    /// Why arguments are not checked, where they are not.
    pub(crate) fn fault(&self, entry: &Entry) -> Option<&str> {
        self.compiled(entry).fault.as_deref()
    }
}
