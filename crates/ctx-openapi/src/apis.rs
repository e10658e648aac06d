//! All APIs of a workspace: their descriptions are read behind everybody's back, and read again when they change.

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

/// How often a file is looked at for changes.
const LOOKING: Duration = Duration::from_secs(2);

/// How soon what could not be read is tried again at first; each time it takes twice as long.
const RETRY_FIRST: Duration = Duration::from_secs(5);

/// How long it takes at most.
const RETRY_MAX: Duration = Duration::from_secs(300);

/// How APIs are kept.
pub struct ApiOptions {
    /// A folder for what descriptions were made into, and for texts of the web.
    pub cache: Option<PathBuf>,
    /// Called when the functions of one of them are others than before.
    pub on_change: Arc<dyn Fn() + Send + Sync>,
    /// Checks the main file of a description each time before it is loaded: it decides where credentials are sent. The
    /// other files of a description are not checked.
    pub is_trusted: Arc<TrustCheck>,
}

/// Whether the description file of the named API may be loaded.
pub type TrustCheck = dyn Fn(&Identifier, &Path) -> bool + Send + Sync;

/// The APIs of a workspace. Dropped, nothing of theirs is read any more.
pub struct Apis {
    all: RwLock<Vec<Followed>>,
}

/// An API whose description is read again whenever it changes, until this is dropped.
struct Followed {
    reading: Arc<Reading>,
    task: AbortHandle,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How an API is doing.
#[derive(Clone, Debug)]
pub struct ApiStatus {
    /// What its functions are found under.
    pub name: Identifier,
    /// Where its description is.
    pub spec: String,
    /// Whether its description was read.
    pub state: ApiState,
    /// What the API is called, once that is known.
    pub title: Option<String>,
    /// How many functions it has.
    pub functions: usize,
    /// Operations that cannot be called, and why.
    pub skipped: Vec<(String, String)>,
    /// How many functions need credentials that are not configured, and what is missing for the first.
    pub locked: Option<(usize, String)>,
    /// Why it is not known where the API is.
    pub unplaced: Option<String>,
}

/// Whether a description was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiState {
    /// It is being read.
    Reading,
    /// It was.
    Ready,
    /// It cannot be.
    Failed(String),
}

/// An API whose description is read.
struct Reading {
    settings: Arc<ApiSettings>,
    client: Arc<Client>,
    texts: Arc<WebTexts>,
    kept: Option<Kept>,
    is_trusted: Arc<TrustCheck>,
    found: watch::Sender<Found>,
}

/// What came of reading a description.
#[derive(Clone, Default)]
struct Found {
    api: Option<Arc<Api>>,
    fingerprint: Option<Fingerprint>,
    /// Where the other texts of the description are.
    others: Vec<String>,
    /// Why it could not be read the last time.
    failure: Option<String>,
}

impl Apis {
    /// Begins to read descriptions, within the runtime that it is called in.
    ///
    /// One whose settings cannot be used ([`ApiSettings::check`]) is left out with a warning.
    pub fn start(settings: Vec<ApiSettings>, options: &ApiOptions) -> Self {
        let apis = Self { all: RwLock::default() };
        apis.update(&|_| false, settings, options);
        apis
    }

    /// Drops all APIs but those to keep, and begins to read the descriptions of those of `settings`, as
    /// [`Apis::start`] does.
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

    /// One provider for each.
    pub fn providers(&self) -> Vec<Arc<dyn Provider>> {
        self.all().into_iter().map(|reading| Arc::new(ApiProvider(reading)) as _).collect()
    }

    /// Waits until every description was read, or could not be.
    pub async fn known(&self) {
        for reading in self.all() {
            reading.known().await;
        }
    }

    /// All functions of each, where its description was read.
    pub fn interfaces(&self) -> impl Iterator<Item = (ApiStatus, Option<Interface>)> {
        self.all().into_iter().map(|reading| {
            let api = reading.found.borrow().api.clone();
            (reading.status(), api.map(|api| api.interface()))
        })
    }

    /// How each is doing.
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

    /// Reads the description, and reads it again when it changes or could not be read.
    async fn keep_up(self: Arc<Self>, on_change: Arc<dyn Fn() + Send + Sync>) {
        // What is kept of the web is there at once; whether it has changed is asked afterwards.
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
            // It may have been changed while it was read.
            if let (Some(now), Some(before)) = (stamp.first_mut(), first) {
                *now = before;
            }
            if self.found.borrow().failure.is_none() {
                retry = RETRY_FIRST;
                if matches!(self.settings.spec, Spec::Web(_)) {
                    // It is asked for again when the program next starts.
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

    /// What shows that one of its files was changed.
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

    /// Reads the description. Whether its functions, or why there are none, are others than before.
    async fn read(self: &Arc<Self>, asking: Asking) -> bool {
        let own = self.clone();
        let loading = move || {
            // The first time too: it may have changed since the configuration was trusted, or after a failure to read it.
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
            // It has to be asked for.
            Err(_) if asking == Asking::Kept => false,
            Err(error) => self.fail(error.to_string()),
        }
    }

    /// Takes down why it could not be read; what was read before stays.
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

    /// Waits until the description was read, or could not be.
    async fn known(&self) -> Found {
        let mut found = self.found.subscribe();
        let is_known = |found: &Found| found.api.is_some() || found.failure.is_some();
        // The sender is ours, so it is there.
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

/// An API, whether its description was read or not.
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
