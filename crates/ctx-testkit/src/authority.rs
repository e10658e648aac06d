//! A fake OAuth authorization server with the parts that a resource server uses: metadata, keys (JWKS), and signed
//! access tokens.

use crate::{MockWebServer, RecordedRequest, http_response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

const KEYS_PATH: &str = "/keys";
/// An RSA key for tests only; `ring` generates keys of all other kinds, but no RSA keys.
const RSA_KEY: &[u8] = include_bytes!("rsa.pk8");

/// A key that signs tokens.
pub struct SigningKey {
    id: String,
    algorithm: String,
    pair: SigningKeyPair,
}

enum SigningKeyPair {
    Rsa(Box<RsaKeyPair>),
    Ecdsa { pair: EcdsaKeyPair, name: &'static str },
    Ed25519(Ed25519KeyPair),
}

impl SigningKey {
    /// A key for this algorithm with this key id.
    pub fn new(algorithm: &str, id: &str) -> Self {
        let random = SystemRandom::new();
        let curve = |algorithm: &'static EcdsaSigningAlgorithm, name| {
            let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            SigningKeyPair::Ecdsa {
                pair: EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap(),
                name,
            }
        };
        let pair = match algorithm {
            "ES256" => curve(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
            "ES384" => curve(&signature::ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
            "EdDSA" => {
                let key = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
                SigningKeyPair::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
            }
            _ => SigningKeyPair::Rsa(Box::new(RsaKeyPair::from_pkcs8(RSA_KEY).unwrap())),
        };
        Self { id: id.to_owned(), algorithm: algorithm.to_owned(), pair }
    }

    /// The public key as a JWK.
    pub fn public_jwk(&self) -> Value {
        let mut key = match &self.pair {
            SigningKeyPair::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({ "kty": "RSA", "n": encode(public.n), "e": encode(public.e) })
            }
            SigningKeyPair::Ecdsa { pair, name } => {
                // An uncompressed point: a format byte, then both coordinates.
                let (x, y) = pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
                json!({ "kty": "EC", "crv": name, "x": encode(x), "y": encode(y) })
            }
            SigningKeyPair::Ed25519(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref()) })
            }
        };
        key["kid"] = json!(self.id);
        key["alg"] = json!(self.algorithm);
        key["use"] = json!("sig");
        key
    }

    /// A signed token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with_header(&json!({"alg": self.algorithm, "kid": self.id, "typ": "at+jwt"}), claims)
    }

    /// A signed token with this header and these claims.
    pub fn sign_with_header(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.signature(message.as_bytes());
        format!("{message}.{}", encode(signature))
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        let encoding: &'static dyn signature::RsaEncoding = match self.algorithm.as_str() {
            "RS384" => &signature::RSA_PKCS1_SHA384,
            "RS512" => &signature::RSA_PKCS1_SHA512,
            "PS256" => &signature::RSA_PSS_SHA256,
            "PS384" => &signature::RSA_PSS_SHA384,
            "PS512" => &signature::RSA_PSS_SHA512,
            _ => &signature::RSA_PKCS1_SHA256,
        };
        match &self.pair {
            SigningKeyPair::Rsa(pair) => {
                let mut signed = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, &random, message, &mut signed).unwrap();
                signed
            }
            SigningKeyPair::Ecdsa { pair, .. } => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            SigningKeyPair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// A forged token for an algorithm confusion attack: HS256 with the public key as the shared secret.
    pub fn sign_hs256_with_public_key(&self, claims: &Value) -> String {
        let header = json!({"alg": "HS256", "kid": self.id, "typ": "at+jwt"});
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let published = self.public_jwk();
        let secret = published["n"].as_str().or(published["x"].as_str()).unwrap();
        let secret = URL_SAFE_NO_PAD.decode(secret).unwrap();
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
        format!("{message}.{}", encode(ring::hmac::sign(&key, message.as_bytes())))
    }
}

/// Claims of a valid token of `issuer` for `audience`: for the user `ada`, for an hour, without scopes.
pub fn valid_claims(issuer: &str, audience: &str) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    json!({"iss": issuer, "aud": audience, "sub": "ada", "iat": now, "exp": now + 3600, "client_id": "test"})
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A running authorization server.
pub struct AuthorizationServer {
    web: MockWebServer,
    state: Arc<AuthorizationServerState>,
}

struct AuthorizationServerState {
    keys: Mutex<Vec<u8>>,
    is_held: Mutex<bool>,
    changed: Condvar,
}

impl AuthorizationServer {
    /// Starts a server that publishes these keys.
    pub fn start(keys: &[&SigningKey]) -> Self {
        let state = Arc::new(AuthorizationServerState {
            keys: Mutex::new(jwks_response(keys)),
            is_held: Mutex::new(false),
            changed: Condvar::new(),
        });
        let shared = state.clone();
        let web = MockWebServer::serve(move |request| shared.respond(request));
        Self { web, state }
    }

    /// Its issuer URL.
    pub fn issuer(&self) -> String {
        self.web.url("")
    }

    /// The URL of its keys (JWKS).
    pub fn keys_url(&self) -> String {
        self.web.url(KEYS_PATH)
    }

    /// Publishes these keys from now on, and no others.
    pub fn publish(&self, keys: &[&SigningKey]) {
        self.set_jwks_response(jwks_response(keys));
    }

    /// Answers requests for the keys with this response from now on.
    pub fn set_jwks_response(&self, reply: Vec<u8>) {
        *self.state.keys.lock().unwrap() = reply;
    }

    /// Delays the responses to requests for the keys while `is_held` is true.
    pub fn hold_responses(&self, is_held: bool) {
        *self.state.is_held.lock().unwrap() = is_held;
        self.state.changed.notify_all();
    }

    /// Number of requests for the keys.
    pub fn jwks_request_count(&self) -> usize {
        let is_for_keys = |request: &&RecordedRequest| request.target() == format!("GET {KEYS_PATH}");
        self.web.requests().iter().filter(is_for_keys).count()
    }
}

impl Drop for AuthorizationServer {
    fn drop(&mut self) {
        self.hold_responses(false);
    }
}

impl AuthorizationServerState {
    fn respond(&self, request: &RecordedRequest) -> Vec<u8> {
        let origin = format!("http://{}", request.header("host").unwrap_or_default());
        match request.target() {
            "GET /.well-known/oauth-authorization-server" => {
                let metadata = json!({"issuer": origin, "jwks_uri": format!("{origin}{KEYS_PATH}")});
                http_response(200, &metadata.to_string())
            }
            target if target == format!("GET {KEYS_PATH}") => {
                let is_held = self.is_held.lock().unwrap();
                drop(self.changed.wait_while(is_held, |is_held| *is_held).unwrap());
                self.keys.lock().unwrap().clone()
            }
            _ => http_response(404, ""),
        }
    }
}

fn jwks_response(keys: &[&SigningKey]) -> Vec<u8> {
    let keys: Vec<Value> = keys.iter().map(|key| key.public_jwk()).collect();
    http_response(200, &json!({ "keys": keys }).to_string())
}
