//! Verifies JWT signatures with `ring`, which TLS uses, too: no second cryptography library is linked.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind, new_error};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

/// The accepted algorithms. All are asymmetric: the signing key stays with the issuer.
pub(super) const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _: &EncodingKey| Err(unsupported()),
    verifier_factory: |algorithm, key| Ok(Box::new(RingVerifier::new(*algorithm, key)?)),
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(unsupported()),
        rsa_pub_components_from_public_key: |_| Err(unsupported()),
        ec_pub_components_from_private_key: |_, _| Err(unsupported()),
        ed_pub_components_from_private_key: |_, _| Err(unsupported()),
        compute_digest: |_, _| Err(unsupported()),
    },
};

/// Installs the provider for this process. To be called before a token is verified.
pub(super) fn install_provider() {
    if PROVIDER.install_default().is_err() {
        // Another provider was installed first, which is as good.
    }
}

fn unsupported() -> Error {
    new_error(ErrorKind::UnsupportedAlgorithm)
}

/// Verification algorithm of a signature algorithm.
#[derive(Clone, Copy)]
enum VerificationMethod {
    Rsa(&'static RsaParameters),
    Other(&'static dyn VerificationAlgorithm),
}

/// Verifies signatures of one algorithm with one key.
struct RingVerifier {
    algorithm: Algorithm,
    method: VerificationMethod,
    key: DecodingKey,
}

impl RingVerifier {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, Error> {
        // Algorithm confusion: with HMAC, a public key would serve as the shared secret.
        if algorithm.family() != key.family() || key.family() == AlgorithmFamily::Hmac {
            return Err(new_error(ErrorKind::InvalidKeyFormat));
        }
        let method = match algorithm {
            Algorithm::RS256 => VerificationMethod::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => VerificationMethod::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => VerificationMethod::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => VerificationMethod::Rsa(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => VerificationMethod::Rsa(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => VerificationMethod::Rsa(&signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => VerificationMethod::Other(&signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => VerificationMethod::Other(&signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => VerificationMethod::Other(&signature::ED25519),
            _ => return Err(unsupported()),
        };
        Ok(Self { algorithm, method, key: key.clone() })
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let verified = match (self.method, self.key.kind()) {
            (VerificationMethod::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (VerificationMethod::Other(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(algorithm, key).verify(message, signature)
            }
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| SignatureError::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
