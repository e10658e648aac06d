//! Cache of the issuer's public keys (JWKS), refreshed in the background.
//!
//! If the issuer does not respond, the last keys stay in use. A token with an unknown key triggers a refresh,
//! at most once per [`OAuthLimits::forced_refresh_interval`] however many such tokens arrive.

use super::OAuthLimits;
use super::issuer::Issuer;
use super::signature::ALGORITHMS;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Header};
use serde::Deserialize;
use serde_json::Value;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Maximum number of keys of one issuer: a token without a key id is checked with each that fits.
const KEYS_MAX: usize = 64;

/// The usable keys that an issuer publishes.
pub(super) struct KeySet {
    keys: Vec<VerificationKey>,
}

struct VerificationKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

impl KeySet {
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct JwksDocument {
            keys: Vec<Value>,
        }
        // The parse error is not shown: it may quote the document, whose content is unknown.
        let document: JwksDocument =
            serde_json::from_slice(text).map_err(|_| "not a JSON Web Key Set".to_owned())?;
        if document.keys.len() > KEYS_MAX {
            return Err(format!("there are more than {KEYS_MAX} keys"));
        }
        // An unusable key does not affect the others.
        Ok(Self { keys: document.keys.into_iter().filter_map(VerificationKey::from_jwk).collect() })
    }

    /// The keys that may have made a signature, according to the header of its token.
    pub(super) fn candidates(&self, header: &Header) -> impl Iterator<Item = &DecodingKey> {
        let named = |key: &&VerificationKey| header.kid.is_none() || key.id == header.kid;
        let fits = |key: &&VerificationKey| key.algorithms.contains(&header.alg);
        self.keys.iter().filter(named).filter(fits).map(|key| &key.key)
    }
}

impl VerificationKey {
    fn from_jwk(jwk: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(jwk).ok()?;
        let common = &jwk.common;
        let signs = common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
        let verifies = common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        if !signs || !verifies {
            return None;
        }
        let mut algorithms: Vec<Algorithm> = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms().to_vec(),
            AlgorithmParameters::EllipticCurve(point) => match point.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(point) if point.curve == EllipticCurve::Ed25519 => {
                vec![Algorithm::EdDSA]
            }
            _ => return None,
        };
        if let Some(named) = common.key_algorithm {
            algorithms.retain(|algorithm| Algorithm::try_from(named).is_ok_and(|named| named == *algorithm));
        }
        algorithms.retain(|algorithm| ALGORITHMS.contains(algorithm));
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        (!algorithms.is_empty()).then_some(Self { id: jwk.common.key_id, algorithms, key })
    }
}

/// The cached keys of the issuer, and their refresh.
pub(super) struct IssuerKeys {
    issuer: Issuer,
    limits: OAuthLimits,
    state: watch::Sender<KeyCacheState>,
    refresh_requested: Notify,
    /// When a token last triggered a refresh.
    last_forced_refresh: Mutex<Option<Instant>>,
}

struct KeyCacheState {
    keys: Option<Arc<KeySet>>,
    /// Number of finished refreshes, failed ones included.
    refreshes: u64,
    /// Whether a refresh is running or requested.
    is_fetching: bool,
}

impl IssuerKeys {
    pub(super) fn new(issuer: Issuer, limits: OAuthLimits) -> Self {
        // [`IssuerKeys::keep_fresh`] begins with a refresh.
        let state = watch::Sender::new(KeyCacheState { keys: None, refreshes: 0, is_fetching: true });
        Self {
            issuer,
            limits,
            state,
            refresh_requested: Notify::new(),
            last_forced_refresh: Mutex::default(),
        }
    }

    /// The keys of the last successful refresh.
    pub(super) fn current(&self) -> Option<Arc<KeySet>> {
        self.state.borrow().keys.clone()
    }

    /// Waits for the end of a refresh, which is requested if none is running and the limit allows one.
    pub(super) async fn wait_for_refresh(&self) {
        let (mut refreshes, mut is_fetching) = (0, false);
        // Under one lock, so that concurrent callers wait for the same refresh.
        self.state.send_if_modified(|state| {
            if !state.is_fetching && self.may_force_refresh() {
                state.is_fetching = true;
                self.refresh_requested.notify_one();
            }
            (refreshes, is_fetching) = (state.refreshes, state.is_fetching);
            false
        });
        if !is_fetching {
            return;
        }
        let mut state = self.state.subscribe();
        let refreshed = state.wait_for(|state| state.refreshes > refreshes);
        if tokio::time::timeout(self.limits.fetch_timeout, refreshed).await.is_err() {
            tracing::debug!("timed out waiting for a refresh of the signing keys");
        }
    }

    fn may_force_refresh(&self) -> bool {
        let mut last_forced_refresh = self.last_forced_refresh.lock().unwrap_or_else(PoisonError::into_inner);
        let may =
            last_forced_refresh.is_none_or(|last| last.elapsed() >= self.limits.forced_refresh_interval);
        if may {
            *last_forced_refresh = Some(Instant::now());
        }
        may
    }

    /// Refreshes the keys periodically and on request; never ends.
    pub(super) async fn keep_fresh(&self) {
        let mut failures = 0;
        loop {
            self.state.send_modify(|state| state.is_fetching = true);
            let fetched = self.issuer.fetch_keys().await;
            let issuer = self.issuer.name();
            match &fetched {
                Ok(keys) if keys.keys.is_empty() => {
                    tracing::warn!("the issuer {issuer} publishes no usable signing key");
                }
                Ok(_) if failures > 0 => {
                    tracing::info!("fetched the signing keys of the issuer {issuer} again")
                }
                Ok(_) => {}
                Err(problem) if failures == 0 => {
                    tracing::warn!(
                        "cannot fetch the signing keys of the issuer {issuer}; retrying: {problem}"
                    );
                }
                Err(problem) => {
                    tracing::debug!("cannot fetch the signing keys of the issuer {issuer}: {problem}")
                }
            }
            failures = if fetched.is_ok() { 0 } else { failures + 1 };
            self.state.send_modify(|state| {
                state.keys = fetched.ok().map(Arc::new).or(state.keys.take());
                state.refreshes += 1;
                state.is_fetching = false;
            });
            tokio::select! {
                () = self.refresh_requested.notified() => {}
                () = tokio::time::sleep(self.delay_after(failures)) => {}
            }
        }
    }

    fn delay_after(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else { return self.limits.refresh_interval };
        self.limits
            .retry_delay
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(self.limits.refresh_interval)
    }
}

impl fmt::Debug for IssuerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuerKeys").field("issuer", &self.issuer.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn count(keys: Value) -> usize {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap().keys.len()
    }

    #[test]
    fn keys_that_cannot_be_used_are_left_out() {
        let curve = |fields: Value| {
            let mut key = json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "a"});
            key.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            key
        };
        assert_eq!(count(json!([curve(json!({}))])), 1);
        assert_eq!(count(json!([curve(json!({"use": "sig", "alg": "ES256", "key_ops": ["verify"]}))])), 1);
        for unusable in [
            curve(json!({"use": "enc"})),
            curve(json!({"key_ops": ["sign"]})),
            curve(json!({"alg": "RS256"})),
            curve(json!({"alg": "ECDH-ES"})),
            curve(json!({"crv": "P-521"})),
            curve(json!({"crv": "secp256k1"})),
            curve(json!({"x": "!"})),
            json!({"kty": "oct", "k": "c2VjcmV0"}),
            json!({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}),
            json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"}),
            json!({}),
            json!("key"),
        ] {
            assert_eq!(count(json!([unusable, curve(json!({}))])), 1, "{unusable}");
        }
    }

    #[test]
    fn a_set_that_is_none_or_too_large_is_refused() {
        let key = json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"});
        for text in ["", "[]", "{}", r#"{"keys": 7}"#, "<html>"] {
            assert!(KeySet::parse(text.as_bytes()).is_err(), "{text}");
        }
        let many = json!({ "keys": vec![key; KEYS_MAX + 1] });
        assert!(KeySet::parse(many.to_string().as_bytes()).is_err());
    }

    #[test]
    fn the_wait_grows_with_failures_up_to_a_bound() {
        let limits = OAuthLimits::default();
        let url = url::Url::parse("https://login.example").unwrap();
        let keys = IssuerKeys::new(Issuer::new("https://login.example", url, None, limits), limits);
        let waits: Vec<u64> = [0, 1, 2, 3, 40].map(|failures| keys.delay_after(failures).as_secs()).into();
        assert_eq!(waits, [600, 1, 2, 4, 600]);
    }
}
