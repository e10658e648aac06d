//! All APIs of a workspace: loads their descriptions in the background, and reloads them when they change.

use crate::api::LoadedApi;
use crate::client::{ApiClient, HttpClient};
use crate::interface::Interface;
use crate::load::{
    CachePolicy, CachedFetcher, DescriptionCache, Fingerprint, LoadError, LoadedDescription, load_description,
};
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
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Delay before a description that could not be read is tried again; it doubles with each failure.
const RETRY_DELAY_FIRST: Duration = Duration::from_secs(5);

/// Upper bound of that delay.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(300);

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
    all: RwLock<Vec<ApiTask>>,
}

/// An API and the task that keeps its description current; dropping it aborts the task.
struct ApiTask {
    loader: Arc<ApiLoader>,
    task: AbortHandle,
}

impl Drop for ApiTask {
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
    pub missing_credentials: Option<(usize, String)>,
    /// Why the base URL is unknown, if it is.
    pub base_url_error: Option<String>,
}

/// Load state of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiState {
    /// Loading for the first time.
    Loading,
    /// Loaded; stays so when a later reload fails.
    Ready,
    /// Could not be loaded, with the reason.
    Failed(String),
}

/// Loads the description of one API, and holds the latest result.
struct ApiLoader {
    settings: Arc<ApiSettings>,
    client: Arc<ApiClient>,
    fetcher: Arc<CachedFetcher>,
    cache: Option<DescriptionCache>,
    is_trusted: Arc<TrustCheck>,
    load_state: watch::Sender<LoadState>,
}

/// The latest result of loading a description.
#[derive(Clone, Default)]
struct LoadState {
    api: Option<Arc<LoadedApi>>,
    fingerprint: Option<Fingerprint>,
    /// Addresses of the other documents that the description refers to.
    other_documents: Vec<String>,
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
        let cache = options.cache.clone().map(DescriptionCache::in_folder);
        let started = settings.into_iter().filter_map(|settings| {
            let name = settings.name.clone();
            let loader = ApiLoader::new(settings, cache.clone(), options.is_trusted.clone())
                .inspect_err(|error| tracing::warn!("{name} is left out: {error}"));
            let loader = Arc::new(loader.ok()?);
            let task = tokio::spawn(loader.clone().keep_current(options.on_change.clone())).abort_handle();
            Some(ApiTask { loader, task })
        });
        let started: Vec<ApiTask> = started.collect();
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|task| keep(&task.loader.settings.name));
        all.extend(started);
    }

    fn all(&self) -> Vec<Arc<ApiLoader>> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|task| task.loader.clone()).collect()
    }

    /// One provider per API.
    pub fn providers(&self) -> Vec<Arc<dyn Provider>> {
        self.all().into_iter().map(|loader| Arc::new(ApiProvider(loader)) as _).collect()
    }

    /// Waits until every description is loaded or has failed to load.
    pub async fn wait_until_loaded(&self) {
        for loader in self.all() {
            loader.wait_until_loaded().await;
        }
    }

    /// The status of each API, with all its functions once its description is loaded.
    pub fn interfaces(&self) -> impl Iterator<Item = (ApiStatus, Option<Interface>)> {
        self.all().into_iter().map(|loader| {
            let api = loader.load_state.borrow().api.clone();
            (loader.status(), api.map(|api| api.interface()))
        })
    }

    /// The status of each API.
    pub fn statuses(&self) -> Vec<ApiStatus> {
        self.all().iter().map(|loader| loader.status()).collect()
    }
}

impl ApiLoader {
    fn new(
        settings: ApiSettings,
        cache: Option<DescriptionCache>,
        is_trusted: Arc<TrustCheck>,
    ) -> Result<Self, ApiError> {
        let fetcher = CachedFetcher::new(HttpClient::new(&settings)?, cache.clone(), Handle::current());
        Ok(Self {
            client: Arc::new(ApiClient::new(&settings)?),
            settings: Arc::new(settings),
            fetcher: Arc::new(fetcher),
            cache,
            is_trusted,
            load_state: watch::Sender::default(),
        })
    }

    /// Loads the description, and reloads it after a change of its files or a failure.
    async fn keep_current(self: Arc<Self>, on_change: Arc<dyn Fn() + Send + Sync>) {
        // The cached copy is available at once; the web is asked afterwards whether it has changed.
        if matches!(self.settings.spec, Spec::Web(_)) && self.reload(CachePolicy::CacheOnly).await {
            on_change();
        }
        let mut retry_delay = RETRY_DELAY_FIRST;
        loop {
            let stamp_before = self.file_stamps().first().copied();
            if self.reload(CachePolicy::Revalidate).await {
                on_change();
            }
            let mut stamps = self.file_stamps();
            // The stamp from before the read: the file may have changed while it was read.
            if let (Some(stamp), Some(before)) = (stamps.first_mut(), stamp_before) {
                *stamp = before;
            }
            if self.load_state.borrow().failure.is_none() {
                retry_delay = RETRY_DELAY_FIRST;
                if matches!(self.settings.spec, Spec::Web(_)) {
                    // Descriptions from the web are revalidated when the program next starts.
                    return;
                }
            }
            let mut waited = Duration::ZERO;
            while self.file_stamps() == stamps
                && (self.load_state.borrow().failure.is_none() || waited < retry_delay)
            {
                tokio::time::sleep(FILE_CHECK_INTERVAL).await;
                waited += FILE_CHECK_INTERVAL;
            }
            retry_delay = (retry_delay * 2).min(RETRY_DELAY_MAX);
        }
    }

    /// Modification time and size of each file of the description, to detect changes.
    fn file_stamps(&self) -> Vec<Option<(SystemTime, u64)>> {
        let Spec::File(path) = &self.settings.spec else { return Vec::new() };
        let other_documents = self.load_state.borrow().other_documents.clone();
        let other_documents = other_documents.iter().map(|other| path.with_file_name(other));
        let stamp = |path: PathBuf| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        std::iter::once(path.clone()).chain(other_documents).map(stamp).collect()
    }

    /// Loads the description again. Returns whether its functions, or the reason why there are none, have changed.
    async fn reload(self: &Arc<Self>, policy: CachePolicy) -> bool {
        let loader = self.clone();
        let load = move || {
            // Checked before every load, the first included: the file may have changed since the
            // configuration was trusted, or since a failed load.
            if let Spec::File(path) = &loader.settings.spec
                && !(loader.is_trusted)(&loader.settings.name, path)
            {
                return Err(LoadError::Text("the file has changed since it was trusted".to_owned()));
            }
            let loaded =
                load_description(&loader.settings.spec, loader.cache.as_ref(), &loader.fetcher, policy)?;
            let known = loader.load_state.borrow().fingerprint.clone();
            Ok::<_, LoadError>((known.as_ref() != Some(&loaded.fingerprint)).then(|| {
                let LoadedDescription { description, address, fingerprint, other_documents } = loaded;
                let (settings, client) = (loader.settings.clone(), loader.client.clone());
                let api = LoadedApi::new(description, address, Some(&fingerprint), settings, client);
                (Arc::new(api), fingerprint, other_documents)
            }))
        };
        let loaded = spawn_blocking(load).await;
        let loaded = loaded.unwrap_or_else(|error| Err(LoadError::Text(error.to_string())));
        let name = &self.settings.name;
        match loaded {
            Ok(Some((api, fingerprint, other_documents))) => {
                tracing::debug!(api = %name, functions = api.operation_count(), "its description was read");
                let fingerprint = Some(fingerprint);
                let load_state = LoadState { api: Some(api), fingerprint, other_documents, failure: None };
                self.load_state.send_replace(load_state);
                true
            }
            Ok(None) => {
                self.load_state.send_modify(|load_state| load_state.failure = None);
                false
            }
            // Not cached: it has to be fetched.
            Err(_) if policy == CachePolicy::CacheOnly => false,
            Err(error) => self.record_failure(error.to_string()),
        }
    }

    /// Records why loading failed, and returns whether the reason is new. A description loaded before stays
    /// in use.
    fn record_failure(&self, reason: String) -> bool {
        self.load_state.send_if_modified(|load_state| {
            let is_new = load_state.failure.as_ref() != Some(&reason);
            if is_new {
                let name = &self.settings.name;
                match load_state.api {
                    Some(_) => {
                        tracing::warn!(
                            "{name} keeps its previous description: the new one cannot be read: {reason}"
                        )
                    }
                    None => {
                        tracing::warn!("{name} cannot be called: its description cannot be read: {reason}")
                    }
                }
                load_state.failure = Some(reason);
            }
            is_new
        })
    }

    /// Waits until the description is loaded or has failed to load.
    async fn wait_until_loaded(&self) -> LoadState {
        let mut load_state = self.load_state.subscribe();
        let is_settled = |load_state: &LoadState| load_state.api.is_some() || load_state.failure.is_some();
        // The channel is open: `self` holds its sender.
        load_state.wait_for(is_settled).await.map(|load_state| load_state.clone()).unwrap_or_default()
    }

    fn status(&self) -> ApiStatus {
        let LoadState { api, failure, .. } = self.load_state.borrow().clone();
        let state = match (&api, failure) {
            (Some(_), _) => ApiState::Ready,
            (None, Some(reason)) => ApiState::Failed(reason),
            (None, None) => ApiState::Loading,
        };
        let api = api.as_ref();
        let skipped = api.map(|api| api.skipped()).unwrap_or_default();
        ApiStatus {
            name: self.settings.name.clone(),
            spec: self.settings.spec.to_string(),
            state,
            title: api.map(|api| api.title().to_owned()).filter(|title| !title.is_empty()),
            functions: api.map_or(0, |api| api.operation_count()),
            skipped: skipped.iter().map(|skipped| (skipped.name.clone(), skipped.reason.clone())).collect(),
            missing_credentials: api.and_then(|api| api.missing_credentials()),
            base_url_error: api.and_then(|api| api.base_url_error()),
        }
    }
}

/// An API as a catalog provider, whether its description is loaded or not.
struct ApiProvider(Arc<ApiLoader>);

#[async_trait]
impl Provider for ApiProvider {
    fn name(&self) -> Identifier {
        self.0.settings.name.clone()
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        let api = self.0.load_state.borrow().api.clone();
        api.map(|api| api.tools()).unwrap_or_default()
    }

    fn exposed(&self) -> bool {
        self.0.settings.exposed
    }

    fn unknown_reason(&self) -> Option<String> {
        let load_state = self.0.load_state.borrow();
        match (&load_state.api, &load_state.failure) {
            (Some(_), _) => None,
            (None, Some(reason)) => {
                Some(format!("cannot be called: its description cannot be read: {reason}"))
            }
            (None, None) => Some("is not known yet: its description is being read".to_owned()),
        }
    }

    async fn wait_until_known(&self) {
        self.0.wait_until_loaded().await;
    }

    fn wait_timeout(&self) -> Option<Duration> {
        Some(self.0.settings.limits.call)
    }
}

#[cfg(test)]
mod tests;
