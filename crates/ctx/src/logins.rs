//! The user's OAuth logins at upstream servers.

use crate::cli::state_folder;
use ctx_core::{Secret, error_chain};
use ctx_mcp::CredentialStore;
use ctx_store::{CREDENTIALS_FILE, Credentials, StoreError};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

/// The store of logins; `None` without a state folder.
pub(crate) fn store() -> Option<Arc<dyn CredentialStore>> {
    Some(Arc::new(LoginStore(Credentials::new(path()?))))
}

/// The path of the file with the logins.
pub(crate) fn path() -> Option<PathBuf> {
    Some(state_folder()?.join(CREDENTIALS_FILE))
}

struct LoginStore(Credentials);

impl CredentialStore for LoginStore {
    fn load(&self, server: &str) -> Result<Option<Secret>, String> {
        self.0.get(server).map_err(to_message)
    }

    fn save(&self, server: &str, credentials: &Secret) -> Result<(), String> {
        self.0.store(server, credentials).map_err(to_message)
    }

    fn forget(&self, server: &str) -> Result<bool, String> {
        self.0.delete(server).map_err(to_message)
    }

    fn lock(&self, server: &str) -> Result<Box<dyn Any + Send>, String> {
        self.0.lock(server).map(|lock| Box::new(lock) as _).map_err(to_message)
    }
}

fn to_message(error: StoreError) -> String {
    format!("cannot access the stored logins: {}", error_chain(&error))
}
