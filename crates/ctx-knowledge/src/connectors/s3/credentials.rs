//! AWS credentials and region, from the environment, the user's profile or the machine, in the order of AWS's own
//! tools. Credentials of the settings take precedence.

use ctx_core::Secret;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The environment variables that are read.
const VARIABLES: [&str; 18] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_DEFAULT_REGION",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "HOME",
];

/// Variables that point to credentials of the machine, with the store's options for them.
const MACHINE_CREDENTIALS: [(&str, AmazonS3ConfigKey); 6] = [
    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", AmazonS3ConfigKey::ContainerAuthorizationTokenFile),
    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", AmazonS3ConfigKey::ContainerCredentialsFullUri),
    ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", AmazonS3ConfigKey::ContainerCredentialsRelativeUri),
    ("AWS_ROLE_ARN", AmazonS3ConfigKey::RoleArn),
    ("AWS_ROLE_SESSION_NAME", AmazonS3ConfigKey::RoleSessionName),
    ("AWS_WEB_IDENTITY_TOKEN_FILE", AmazonS3ConfigKey::WebIdentityTokenFile),
];

/// Profile keys of credential sources that are not supported.
const UNSUPPORTED_SOURCES: [&str; 4] = ["credential_process", "role_arn", "sso_session", "sso_start_url"];

/// The environment variables that AWS's tools read.
#[derive(Clone, Default)]
pub(super) struct AwsEnvironment {
    variables: BTreeMap<&'static str, String>,
}

/// Credentials: an access key, and for a session its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AwsCredentials {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: Secret,
    pub(super) session_token: Option<Secret>,
}

impl AwsEnvironment {
    pub(super) fn new(lookup: &dyn Fn(&str) -> Option<String>) -> Self {
        let set = |name: &'static str| Some((name, lookup(name).filter(|value| !value.is_empty())?));
        Self { variables: VARIABLES.into_iter().filter_map(set).collect() }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// URL of the service, unless it is AWS.
    pub(super) fn endpoint_url(&self) -> Option<&str> {
        self.get("AWS_ENDPOINT_URL_S3").or_else(|| self.get("AWS_ENDPOINT_URL"))
    }

    /// The region of the environment or the profile.
    pub(super) fn region(&self) -> Option<String> {
        let region = self.get("AWS_REGION").or_else(|| self.get("AWS_DEFAULT_REGION")).map(str::to_owned);
        region.or_else(|| self.profile().ok()?.remove("region"))
    }

    /// Credentials of the environment or the profile; `None` if the machine must provide them.
    pub(super) fn credentials(&self) -> Result<Option<AwsCredentials>, String> {
        if let (Some(id), Some(secret)) = (self.get("AWS_ACCESS_KEY_ID"), self.get("AWS_SECRET_ACCESS_KEY")) {
            return Ok(Some(AwsCredentials {
                access_key_id: id.to_owned(),
                secret_access_key: Secret::new(secret),
                session_token: self.get("AWS_SESSION_TOKEN").map(Secret::new),
            }));
        }
        let mut profile = self.profile()?;
        if let (Some(id), Some(secret)) =
            (profile.remove("aws_access_key_id"), profile.remove("aws_secret_access_key"))
        {
            return Ok(Some(AwsCredentials {
                access_key_id: id,
                secret_access_key: Secret::new(secret),
                session_token: profile.remove("aws_session_token").map(Secret::new),
            }));
        }
        match UNSUPPORTED_SOURCES.into_iter().find(|source| profile.contains_key(*source)) {
            Some(source) => Err(format!(
                "the profile `{}` gets its credentials by `{source}`, which is not supported; put them into the \
                 environment (`aws configure export-credentials --format env`)",
                self.profile_name()
            )),
            None => Ok(None),
        }
    }

    /// Configures the store to get credentials from the machine.
    pub(super) fn with_machine_credentials(&self, builder: AmazonS3Builder) -> AmazonS3Builder {
        let builder =
            MACHINE_CREDENTIALS.into_iter().fold(builder, |builder, (name, key)| match self.get(name) {
                Some(value) => builder.with_config(key, value),
                None => builder,
            });
        match self.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
            Some(endpoint) => builder.with_metadata_endpoint(endpoint),
            None => builder,
        }
    }

    fn profile_name(&self) -> &str {
        self.get("AWS_PROFILE").unwrap_or("default")
    }

    /// The profile, merged from both files; the credentials file takes precedence.
    fn profile(&self) -> Result<BTreeMap<String, String>, String> {
        let name = self.profile_name();
        let file = |variable, usual: &str| {
            let path = self.get(variable).map(PathBuf::from);
            let path = path.or_else(|| Some(PathBuf::from(self.get("HOME")?).join(".aws").join(usual)))?;
            fs::read_to_string(path).ok()
        };
        let config = file("AWS_CONFIG_FILE", "config").unwrap_or_default();
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
        let sections = [
            profile_section(&config, &format!("profile {name}")),
            profile_section(&config, name),
            profile_section(&credentials, name),
        ];
        if self.get("AWS_PROFILE").is_some() && sections.iter().all(Option::is_none) {
            return Err(format!("there is no profile `{name}`"));
        }
        Ok(sections.into_iter().flatten().flatten().collect())
    }
}

/// Keys and values of a section of an INI file, as AWS writes them.
fn profile_section(text: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let mut entries = None;
    let mut inside = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with(['#', ';']) || trimmed.is_empty() {
            continue;
        }
        if let Some(header) = trimmed.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            inside = header.split_whitespace().eq(name.split_whitespace());
            if inside {
                entries.get_or_insert_with(BTreeMap::new);
            }
        } else if let (true, Some((key, value)), false) =
            (inside, trimmed.split_once('='), line.starts_with([' ', '\t']))
        {
            let value = value.split(" #").next().unwrap_or_default().trim();
            entries
                .get_or_insert_with(BTreeMap::new)
                .insert(key.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key=B # work\n\n\
                               [ other ]\naws_access_key_id=C\naws_secret_access_key = D=\naws_session_token = E\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\n[profile other]\nregion=eu-north-1\ns3 =\n  region = no\n\
                          [profile sso]\nsso_session = x\n";

    /// An environment with these variables, and these files in its home.
    fn environment(variables: &[(&str, &str)]) -> (tempfile::TempDir, AwsEnvironment) {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".aws")).unwrap();
        fs::write(home.path().join(".aws/credentials"), CREDENTIALS).unwrap();
        fs::write(home.path().join(".aws/config"), CONFIG).unwrap();
        let lookup = |name: &str| {
            let set = variables.iter().find(|(variable, _)| *variable == name);
            set.map(|(_, value)| (*value).to_owned())
                .or_else(|| (name == "HOME").then(|| home.path().to_str().unwrap().to_owned()))
        };
        let environment = AwsEnvironment::new(&lookup);
        (home, environment)
    }

    fn credentials(id: &str, secret: &str, token: Option<&str>) -> AwsCredentials {
        AwsCredentials {
            access_key_id: id.to_owned(),
            secret_access_key: Secret::new(secret),
            session_token: token.map(Secret::new),
        }
    }

    #[test]
    fn the_environment_comes_before_the_profile() {
        let (_home, set) =
            environment(&[("AWS_ACCESS_KEY_ID", "X"), ("AWS_SECRET_ACCESS_KEY", "Y"), ("AWS_REGION", "r")]);
        assert_eq!(
            (set.credentials(), set.region().as_deref()),
            (Ok(Some(credentials("X", "Y", None))), Some("r"))
        );
        let (_home, unset) = environment(&[]);
        assert_eq!(
            (unset.credentials(), unset.region().as_deref()),
            (Ok(Some(credentials("A", "B", None))), Some("eu-west-1"))
        );
        let (_home, other) = environment(&[("AWS_PROFILE", "other")]);
        assert_eq!(other.credentials(), Ok(Some(credentials("C", "D=", Some("E")))));
        assert_eq!(other.region().as_deref(), Some("eu-north-1"));
    }

    #[test]
    fn a_missing_or_unsupported_profile_is_an_error() {
        let (_home, missing) = environment(&[("AWS_PROFILE", "nope")]);
        assert_eq!(missing.credentials(), Err("there is no profile `nope`".to_owned()));
        let (_home, sso) = environment(&[("AWS_PROFILE", "sso")]);
        assert!(sso.credentials().unwrap_err().contains("`sso_session`, which is not supported"));
        let nothing = AwsEnvironment::new(&|_| None);
        assert_eq!((nothing.credentials(), nothing.region()), (Ok(None), None));
    }

    proptest! {
        #[test]
        fn no_file_makes_the_parser_panic(text in any::<String>()) {
            let _ = profile_section(&text, "default");
        }
    }
}
