//! `[apis.<name>]`: APIs with an OpenAPI description.

use super::Config;
use ctx_openapi::ApiSettings;

impl Config {
    /// The APIs that may be used, and what is to be known of their names.
    pub(crate) fn apis(&self, _: &dyn Fn(&str) -> bool) -> (Vec<ApiSettings>, Vec<String>) {
        (Vec::new(), Vec::new())
    }
}
