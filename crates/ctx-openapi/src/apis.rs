//! All APIs of a workspace: loads their descriptions in the background, and reloads them when they change.

use crate::api::Api;
use crate::client::{Client, Web};
use crate::interface::Interface;
use crate::load::{Asking, Fingerprint, Kept, LoadError, Loaded, WebTexts, load};
use crate::settings::{ApiError, ApiSettings, Spec};
use async_trait::async_trait;
use ctx_core::{Identifier, Provider, Tool};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_blocking};

/// Interval at which description files are checked for changes.
const LOOKING: Duration = Duration::from_secs(2);

/// Delay before a description that could not be read is tried again; it doubles with each failure.
const RETRY_FIRST: Duration = Duration::from_secs(5);

/// Upper bound of that delay.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Options that all APIs of a workspace share.
pub struct ApiOptions {
    /// Cache folder for parsed descriptions and for texts from the web.
    pub cache: Option<PathBuf>,
    /// Called when the functions of an API change, or when its description fails for a new reason.
    pub on_change: Arc<dyn Fn() + Send + Sync>,
    /// Checks the main file of a description each time before it is loaded: it decides where credentials are sent. The
    /// other files of a description are not checked.
    pub is_trusted: Arc<TrustCheck>,
}

/// Whether the description file of the named API may be loaded.
pub type TrustCheck = dyn Fn(&Identifier, &Path) -> bool + Send + Sync;

/// The APIs of a workspace. Dropping it stops the loading of their descriptions.
pub struct Apis {
    all: RwLock<Vec<Followed>>,
}

/// An API and the task that keeps its description current; dropping it aborts the task.
struct Followed {
    reading: Arc<Reading>,
    task: AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The status of one API.
#[derive(Clone, Debug)]
pub struct ApiStatus {
    /// The namespace of its functions.
    pub name: Identifier,
    /// Location of its description: a path, or a URL without query.
    pub spec: String,
    /// Whether its description is loaded.
    pub state: ApiState,
    /// Title from the description, once that is loaded.
    pub title: Option<String>,
    /// Number of functions.
    pub functions: usize,
    /// Operations that cannot be called, and why.
    pub skipped: Vec<(String, String)>,
    /// Number of functions whose credentials are not configured, and the error message of the first.
    pub locked: Option<(usize, String)>,
    /// Why the base URL is unknown, if it is.
    pub unplaced: Option<String>,
}

/// Load state of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiState {
    /// Loading for the first time.
    Reading,
    /// Loaded; stays so when a later reload fails.
    Ready,
    /// Could not be loaded, with the reason.
    Failed(String),
}

/// Loads the description of one API, and holds the latest result.
struct Reading {
    settings: Arc<ApiSettings>,
    client: Arc<Client>,
    texts: Arc<WebTexts>,
    kept: Option<Kept>,
    is_trusted: Arc<TrustCheck>,
    found: watch::Sender<Found>,
}

/// The latest result of loading a description.
#[derive(Clone, Default)]
struct Found {
    api: Option<Arc<Api>>,
    fingerprint: Option<Fingerprint>,
    /// Addresses of the other documents that the description refers to.
    others: Vec<String>,
    /// Why the last attempt failed.
    failure: Option<String>,
}

impl Apis {
    /// Starts to load the descriptions, on the current tokio runtime.
    ///
    /// An API with an unusable header or proxy is left out with a warning.
    pub fn start(settings: Vec<ApiSettings>, options: &ApiOptions) -> Self {
        let apis = Self { all: RwLock::default() };
        apis.update(&|_| false, settings, options);
        apis
    }

    /// Drops all APIs that `keep` rejects, and starts those of `settings`, as [`Apis::start`] does.
    pub fn update(
        &self,
        keep: &dyn Fn(&Identifier) -> bool,
        settings: Vec<ApiSettings>,
        options: &ApiOptions,
    ) {
        let kept = options.cache.clone().map(Kept::in_folder);
        let started = settings.into_iter().filter_map(|settings| {
            let name = settings.name.clone();
            let reading = Reading::new(settings, kept.clone(), options.is_trusted.clone())
                .inspect_err(|error| tracing::warn!("{name} is left out: {error}"));
            let reading = Arc::new(reading.ok()?);
            let task = tokio::spawn(reading.clone().keep_up(options.on_change.clone())).abort_handle();
            Some(Followed { reading, task })
        });
        let started: Vec<Followed> = started.collect();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|followed| keep(&followed.reading.settings.name));
        all.extend(started);
    }

    fn all(&self) -> Vec<Arc<Reading>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|followed| followed.reading.clone()).collect()
    }

    /// One provider per API.
    pub fn providers(&self) -> Vec<Arc<dyn Provider>> {
        self.all().into_iter().map(|reading| Arc::new(ApiProvider(reading)) as _).collect()
    }

    /// Waits until every description is loaded or has failed to load.
    pub async fn known(&self) {
        for reading in self.all() {
            reading.known().await;
        }
    }

    /// The status of each API, with all its functions once its description is loaded.
    pub fn interfaces(&self) -> impl Iterator<Item = (ApiStatus, Option<Interface>)> {
        self.all().into_iter().map(|reading| {
            let api = reading.found.borrow().api.clone();
            (reading.status(), api.map(|api| api.interface()))
        })
    }

    /// The status of each API.
    pub fn states(&self) -> Vec<ApiStatus> {
        self.all().iter().map(|reading| reading.status()).collect()
    }
}

impl Reading {
    fn new(settings: ApiSettings, kept: Option<Kept>, is_trusted: Arc<TrustCheck>) -> Result<Self, ApiError> {
        let texts = WebTexts::new(Web::new(&settings)?, kept.clone(), Handle::current());
        Ok(Self {
            client: Arc::new(Client::new(&settings)?),
            settings: Arc::new(settings),
            texts: Arc::new(texts),
            kept,
            is_trusted,
            found: watch::Sender::default(),
        })
    }

    /// Loads the description, and reloads it after a change of its files or a failure.
    async fn keep_up(self: Arc<Self>, on_change: Arc<dyn Fn() + Send + Sync>) {
        // The cached copy is available at once; the web is asked afterwards whether it has changed.
        if matches!(self.settings.spec, Spec::Web(_)) && self.read(Asking::Kept).await {
            on_change();
        }
        let mut retry = RETRY_FIRST;
        loop {
            let first = self.stamp().first().copied();
            if self.read(Asking::Web).await {
                on_change();
            }
            let mut stamp = self.stamp();
            // The stamp from before the read: the file may have changed while it was read.
            if let (Some(now), Some(before)) = (stamp.first_mut(), first) {
                *now = before;
            }
            if self.found.borrow().failure.is_none() {
                retry = RETRY_FIRST;
                if matches!(self.settings.spec, Spec::Web(_)) {
                    // Descriptions from the web are revalidated when the program next starts.
                    return;
                }
            }
            let mut waited = Duration::ZERO;
            while self.stamp() == stamp && (self.found.borrow().failure.is_none() || waited < retry) {
                tokio::time::sleep(LOOKING).await;
                waited += LOOKING;
            }
            retry = (retry * 2).min(RETRY_MAX);
        }
    }

    /// Modification time and size of each file of the description, to detect changes.
    fn stamp(&self) -> Vec<Option<(SystemTime, u64)>> {
        let Spec::File(path) = &self.settings.spec else { return Vec::new() };
        let others = self.found.borrow().others.clone();
        let others = others.iter().map(|other| path.with_file_name(other));
        let stamp = |path: PathBuf| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.modified().ok()?, about.len()))
        };
        std::iter::once(path.clone()).chain(others).map(stamp).collect()
    }

    /// Loads the description. Returns whether its functions, or the reason why there are none, have changed.
    async fn read(self: &Arc<Self>, asking: Asking) -> bool {
        let own = self.clone();
        let loading = move || {
            // Checked before every load, the first included: the file may have changed since the
            // configuration was trusted, or since a failed load.
            if let Spec::File(path) = &own.settings.spec
                && !(own.is_trusted)(&own.settings.name, path)
            {
                return Err(LoadError::Text(
                    "it is no longer what was trusted, and was not edited here".to_owned(),
                ));
            }
            let loaded = load(&own.settings.spec, own.kept.as_ref(), &own.texts, asking)?;
            let known = own.found.borrow().fingerprint.clone();
            Ok::<_, LoadError>((known.as_ref() != Some(&loaded.fingerprint)).then(|| {
                let Loaded { description, address, fingerprint, others } = loaded;
                let api = Api::new(description, address, own.settings.clone(), own.client.clone());
                (Arc::new(api), fingerprint, others)
            }))
        };
        let read = spawn_blocking(loading).await;
        let read = read.unwrap_or_else(|error| Err(LoadError::Text(error.to_string())));
        let name = &self.settings.name;
        match read {
            Ok(Some((api, fingerprint, others))) => {
                tracing::debug!(api = %name, functions = api.count(), "its description was read");
                let fingerprint = Some(fingerprint);
                let found = Found { api: Some(api), fingerprint, others, failure: None };
                self.found.send_replace(found);
                true
            }
            Ok(None) => {
                self.found.send_modify(|found| found.failure = None);
                false
            }
            // Not cached: it has to be fetched.
            Err(_) if asking == Asking::Kept => false,
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Records why loading failed, and returns whether the reason is new. A description loaded before stays
    /// in use.
    fn fail(&self, reason: String) -> bool {
        self.found.send_if_modified(|found| {
            let is_new = found.failure.as_ref() != Some(&reason);
            if is_new {
                let name = &self.settings.name;
                match found.api {
                    Some(_) => {
                        tracing::warn!("{name} stays as it was: its description cannot be read: {reason}")
                    }
                    None => {
                        tracing::warn!("{name} cannot be called: its description cannot be read: {reason}")
                    }
                }
                found.failure = Some(reason);
            }
            is_new
        })
    }

    /// Waits until the description is loaded or has failed to load.
    async fn known(&self) -> Found {
        let mut found = self.found.subscribe();
        let is_known = |found: &Found| found.api.is_some() || found.failure.is_some();
        // The channel is open: `self` holds its sender.
        found.wait_for(is_known).await.map(|found| found.clone()).unwrap_or_default()
    }

    fn status(&self) -> ApiStatus {
        let Found { api, failure, .. } = self.found.borrow().clone();
        let state = match (&api, failure) {
            (Some(_), _) => ApiState::Ready,
            (None, Some(reason)) => ApiState::Failed(reason),
            (None, None) => ApiState::Reading,
        };
        let api = api.as_ref();
        let skipped = api.map(|api| api.skipped()).unwrap_or_default();
        ApiStatus {
            name: self.settings.name.clone(),
            spec: self.settings.spec.to_string(),
            state,
            title: api.map(|api| api.title().to_owned()).filter(|title| !title.is_empty()),
            functions: api.map_or(0, |api| api.count()),
            skipped: skipped.iter().map(|skipped| (skipped.what.clone(), skipped.why.clone())).collect(),
            locked: api.and_then(|api| api.locked()),
            unplaced: api.and_then(|api| api.unplaced()),
        }
    }
}

/// An API as a catalog provider, whether its description is loaded or not.
struct ApiProvider(Arc<Reading>);

#[async_trait]
impl Provider for ApiProvider {
    fn name(&self) -> Identifier {
        self.0.settings.name.clone()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let api = self.0.found.borrow().api.clone();
        api.map(|api| api.tools()).unwrap_or_default()
    }

    fn exposed(&self) -> bool {
        self.0.settings.exposed
    }

    fn unknown(&self) -> Option<String> {
        let found = self.0.found.borrow();
        match (&found.api, &found.failure) {
            (Some(_), _) => None,
            (None, Some(reason)) => {
                Some(format!("cannot be called: its description cannot be read: {reason}"))
            }
            (None, None) => Some("is not known yet: its description is being read".to_owned()),
        }
    }

    async fn settle(&self) {
        self.0.known().await;
    }

    fn call_timeout(&self) -> Option<Duration> {
        Some(self.0.settings.limits.call)
    }
}

#[cfg(test)]
mod tests;
