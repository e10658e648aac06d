//! Trust requests: which settings of a workspace's file need trust, and that untrusted ones are left out.

use super::{CliOverrides, TRUST_ALL, data_folder, variable};
use crate::config::isolate::isolate;
use crate::config::tree::ConfigLayer;
use crate::config::{Config, ConfigError, ConfigLocation, LoadContext, TrustRequest};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A workspace's configuration file, and optionally a user-level one.
pub(super) struct ConfigFiles {
    folder: TempDir,
    located: ConfigLocation,
}

impl ConfigFiles {
    pub(super) fn new(workspace: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("workspace");
        fs::create_dir_all(root.join("docs")).unwrap();
        fs::write(root.join("ctx.toml"), workspace).unwrap();
        let located =
            ConfigLocation { user: None, workspace: Some(root.join("ctx.toml")), root, named: false };
        Self { folder, located }
    }

    fn user(mut self, text: &str) -> Self {
        let path = self.folder.path().join("user.toml");
        fs::write(&path, text).unwrap();
        self.located.user = Some(path);
        self
    }

    fn load(&self, is_trusted: &dyn Fn(&Path, &[TrustRequest]) -> Vec<bool>) -> Config {
        self.try_load(is_trusted).unwrap()
    }

    pub(super) fn try_load(
        &self,
        is_trusted: &dyn Fn(&Path, &[TrustRequest]) -> Vec<bool>,
    ) -> Result<Config, ConfigError> {
        let context = LoadContext { variables: &variable, data_folder: &data_folder, is_trusted };
        Config::load(&self.located, &CliOverrides::default(), context)
    }

    fn untrusted(&self) -> Config {
        self.load(&|_, requests| vec![false; requests.len()])
    }

    fn trusted(&self) -> Config {
        Config::load(&self.located, &CliOverrides::default(), TRUST_ALL).unwrap()
    }
}

fn sections(text: &str) -> Vec<String> {
    let config = ConfigFiles::new(text).untrusted();
    assert_eq!(config.trust_requests, config.untrusted, "{text}");
    config.untrusted.into_iter().map(|request| request.section).collect()
}

#[test]
fn a_folder_of_documents_needs_no_trust() {
    for text in [
        "",
        "[connectors.filesystem.a]\nroot = \".\"\nfollow_symlinks = false\n",
        "[connectors.filesystem.a]\nroot = \"docs\"\n[connectors.filesystem.b]\nroot = \"not/there/yet\"\n",
        "[embedding]\nprovider = \"disabled\"\n",
        "[embedding]\nprovider = \"builtin\"\nmodel = \"fast\"\nfill = \"wait\"\n",
        "[server]\nbind = \"127.0.0.1:0\"\nallowed_hosts = []\nallowed_origins = []\n",
        "[server]\nbind = \"[::1]:7331\"\n",
        "[server]\nbind = \"localhost:7331\"\n",
        "[chunking]\nmax_tokens = 128\n[retrieval]\nmode = \"keyword\"\n[limits]\nscript_calls = 3\n",
        "[agents.inline.a]\ndescription = \"costs $${HOME} and $5\"\nsystem_prompt = \"x\"\n",
    ] {
        assert_eq!(sections(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn whatever_reaches_beyond_the_folder_needs_trust_and_is_left_out() {
    for (text, section) in [
        ("[mcp_servers.a]\ncommand = \"x\"\n", "mcp_servers.a"),
        ("[mcp_servers.a]\nurl = \"https://x\"\n", "mcp_servers.a"),
        ("[apis.a]\nspec = \"a.yaml\"\n", "apis.a"),
        ("[frozen_params]\na = 1\n", "frozen_params"),
        ("[tools.script.a]\npath = \"a.lua\"\n", "tools.script.a"),
        ("[agents.script.a]\npath = \"a.lua\"\n", "agents.script.a"),
        ("[connectors.script.a]\npath = \"a.lua\"\n", "connectors.script.a"),
        ("[connectors.git.a]\nurl = \"https://x/y.git\"\n", "connectors.git.a"),
        ("[connectors.git.a]\nurl = \"./inside\"\n", "connectors.git.a"),
        ("[connectors.s3.a]\nbucket = \"b\"\n", "connectors.s3.a"),
        ("[connectors.filesystem.a]\nroot = \"/etc\"\n", "connectors.filesystem.a"),
        ("[connectors.filesystem.a]\nroot = \".\"\nfollow_symlinks = true\n", "connectors.filesystem.a"),
        (
            "[connectors.filesystem.a]\nroot = \".\"\ninclude_sensitive_globs = [\".env\"]\n",
            "connectors.filesystem.a",
        ),
        ("[connectors.filesystem.a]\nroot = \"..\"\n", "connectors.filesystem.a"),
        ("[connectors.filesystem.a]\nroot = \"docs/../..\"\n", "connectors.filesystem.a"),
        ("[connectors.filesystem.a]\nroot = \"nowhere/../../x\"\n", "connectors.filesystem.a"),
        ("[connectors.filesystem.a]\nroot = \"${HOME:-docs}\"\n", "connectors.filesystem.a"),
        ("[connectors.filesystem.a]\nroot = \".\"\ntags = [\"${KEY}\"]\n", "connectors.filesystem.a"),
        ("[embedding]\nprovider = \"openai\"\n", "embedding"),
        ("[embedding]\nprovider = \"local\"\npath = \"docs\"\n", "embedding"),
        ("[embedding]\nurl = \"https://x\"\n", "embedding"),
        ("[embedding]\napi_key = \"${KEY}\"\n", "embedding"),
        ("[embedding]\nmodel = \"${KEY}\"\n", "embedding.model"),
        ("[server]\nbind = \"0.0.0.0:7331\"\n", "server.bind"),
        ("[server]\nbind = \"example.com:7331\"\n", "server.bind"),
        ("[server]\nbind = \"${SET}\"\n", "server.bind"),
        ("[server]\ntoken = \"short\"\n", "server.token"),
        ("[server]\nallowed_origins = [\"https://x\"]\n", "server.allowed_origins"),
        ("[server]\nallowed_hosts = [\"x\"]\n", "server.allowed_hosts"),
        ("[server.oauth]\nissuer = \"https://x\"\naudience = \"a\"\n", "server.oauth"),
        ("[db]\npath = \"inside.sqlite\"\n", "db"),
        ("[db]\npath = \"/var/lib/other.sqlite\"\n", "db"),
        ("[retrieval]\nmode = \"${MODE:-keyword}\"\n", "retrieval.mode"),
        ("[agents.inline.a]\ndescription = \"${KEY}\"\nsystem_prompt = \"x\"\n", "agents.inline.a"),
    ] {
        assert_eq!(sections(text), [section], "{text}");
        let config = ConfigFiles::new(text).untrusted();
        let settings = &config.settings;
        let counts = [
            settings.mcp_servers.len(),
            settings.apis.len(),
            settings.tools.values().map(|named| named.len()).sum(),
            settings.agents.values().map(|named| named.len()).sum(),
            settings.connectors.values().map(|named| named.len()).sum(),
        ];
        assert_eq!(counts, [0; 5], "{text}");
        assert_eq!(settings.server.bind, "127.0.0.1:7331", "{text}");
        assert!(settings.server.token.is_none() && settings.server.oauth.is_none(), "{text}");
        assert_eq!(config.store_path(), Path::new("/state/ctx/workspaces/x/ctx.sqlite"), "{text}");
        let shown = format!("{:?}", config.shown_settings());
        assert!(!shown.contains("hunter2") && !shown.contains("${"), "{text}: {shown}");
    }
}

#[test]
#[cfg(unix)]
fn a_link_out_of_the_folder_is_outside() {
    for (link, root) in [("out", "out"), ("docs/out", "docs/out/deeper")] {
        let files = ConfigFiles::new(&format!("[connectors.filesystem.a]\nroot = \"{root}\"\n"));
        assert!(files.untrusted().untrusted.is_empty());
        std::os::unix::fs::symlink("/etc", files.located.root.join(link)).unwrap();
        assert_eq!(files.untrusted().untrusted.len(), 1, "{root}");
        fs::remove_file(files.located.root.join(link)).unwrap();
        std::os::unix::fs::symlink("/nowhere/yet", files.located.root.join(link)).unwrap();
        assert_eq!(files.untrusted().untrusted.len(), 1, "{root}");
    }
}

#[test]
fn trust_is_given_section_by_section() {
    let files = ConfigFiles::new("[mcp_servers.a]\ncommand = \"x\"\n[mcp_servers.b]\ncommand = \"y\"\n");
    let config =
        files.load(&|_, requests| requests.iter().map(|request| request.section.ends_with('b')).collect());
    assert_eq!(config.settings.mcp_servers.keys().collect::<Vec<_>>(), ["b"]);
    let files = ConfigFiles::new("[apis.a]\nspec = \"a.yaml\"\n[frozen_params]\ntenant = 1\n");
    let config =
        files.load(&|_, requests| requests.iter().map(|request| request.section == "apis.a").collect());
    assert!(config.settings.apis.is_empty(), "callers could choose what was to be frozen");
}

#[test]
fn the_hash_is_of_what_is_written_and_of_nothing_else() {
    let hash = |text: &str| ConfigFiles::new(text).untrusted().untrusted.remove(0).hash;
    let server = "[mcp_servers.a]\ncommand = \"x\"\nargs = [\"${SET}\"]\n";
    assert_eq!(hash(server), hash(&format!("# a comment\n{server}")));
    for other in [
        server.replace("SET", "KEY"),
        server.replace("mcp_servers.a", "mcp_servers.b"),
        server.replace("\"x\"", "\"y\""),
        format!("{server}env = {{ A = \"1\" }}\n"),
    ] {
        assert_ne!(hash(server), hash(&other), "{other}");
    }
}

#[test]
fn files_that_a_section_runs_are_covered() {
    let files = ConfigFiles::new(
        "[tools.script.t]\npath = \"t.lua\"\n[apis.a]\nspec = \"a.yaml\"\n[apis.b]\nspec = \"https://x/a.yaml\"\n\
         [mcp_servers.s]\ncommand = \"node\"\nargs = [\"-e\", \"server.js\", \"missing.js\", \"/etc/hostname\"]\n",
    );
    fs::write(files.located.root.join("server.js"), "").unwrap();
    let names = |request: &TrustRequest| -> Vec<String> {
        request.files.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    };
    let covered: Vec<_> = files.untrusted().untrusted.iter().map(names).collect();
    assert_eq!(covered, [vec!["a.yaml"], vec![], vec!["server.js"], vec!["t.lua"]]);
}

#[test]
fn credentials_of_the_user_go_only_where_the_user_says() {
    let user = "[embedding]\nprovider = \"openai\"\nurl = \"https://mine\"\nmodel = \"m\"\napi_key = \"${KEY}\"\n\
        [mcp_servers.s]\nurl = \"https://mine\"\nheaders = { Authorization = \"Bearer ${KEY}\" }\n\
        [apis.a]\nspec = \"https://mine/a.yaml\"\nauth = \"${KEY}\"\n\
        [tools.script.t]\npath = \"/own/t.lua\"\nkey = \"${KEY}\"\n\
        [frozen_params]\napi_key = \"${KEY}\"\n";
    let theirs = "[embedding]\nurl = \"https://theirs\"\n[mcp_servers.s]\nurl = \"https://theirs\"\n\
        [apis.a]\nspec = \"https://theirs/a.yaml\"\n[apis.other]\nspec = \"https://theirs/b.yaml\"\n\
        [tools.script.t]\npath = \"theirs.lua\"\n";
    let config = ConfigFiles::new(theirs).user(user).trusted();
    let left = config.tree.to_json().to_string();
    assert!(!left.contains("hunter2"), "{left}");
    assert!(config.warnings[0].contains("your own `embedding.api_key` is not used"), "{:?}", config.warnings);
    // A workspace section that sets no address is merged over the user's.
    let config = ConfigFiles::new("[embedding]\ntimeout = 5\n[mcp_servers.s]\nstart = \"lazy\"\n")
        .user(user)
        .trusted();
    let left = config.tree.to_json().to_string();
    assert_eq!(left.matches("hunter2hunter2").count(), 5, "{left}");
    assert_eq!(config.warnings, Vec::<String>::new());
    assert!(config.apis(&|_| true).0[0].frozen.contains_key("api_key"));
}

#[test]
fn a_workspace_cannot_redirect_credentials_of_the_user_by_other_keys_than_the_address() {
    let user = "[mcp_servers.s]\ncommand = \"npx\"\nargs = [\"mine\"]\nenv = { TOKEN = \"${KEY}\" }\n\
        [apis.a]\nspec = \"https://mine/a.yaml\"\n[apis.a.auth]\ntype = \"oauth2\"\nclient_id = \"x\"\n\
        client_secret = \"${KEY}\"\n";
    for theirs in [
        "[mcp_servers.s]\ncommand = \"npx\"\nargs = [\"theirs\"]\n",
        "[mcp_servers.s]\nargs = [\"theirs\"]\n",
        "[mcp_servers.s]\ncwd = \"theirs\"\n",
        "[mcp_servers.s]\nenv = { NODE_OPTIONS = \"--require=./theirs.js\" }\n",
        "[apis.a.auth]\ntoken_url = \"https://theirs\"\n",
        "[apis.a]\nproxy = \"http://theirs\"\n",
    ] {
        let layer = ConfigLayer::parse("theirs", theirs).unwrap().table;
        let mut below = ConfigLayer::parse("user", user).unwrap().table;
        let before = below.to_json().to_string().matches("${KEY}").count();
        isolate(&mut below, &layer, &mut Vec::new());
        assert_eq!(below.to_json().to_string().matches("${KEY}").count(), before - 1, "{theirs}");
    }
}

#[test]
fn a_section_over_one_of_the_user_needs_trust_where_that_one_is_outside() {
    let user = "[connectors.filesystem.home]\nroot = \"/etc\"\ninclude_globs = [\"*.md\"]\n";
    let files = ConfigFiles::new("[connectors.filesystem.home]\ninclude_globs = [\"**\"]\n").user(user);
    let config = files.untrusted();
    assert_eq!(config.untrusted[0].section, "connectors.filesystem.home");
    assert_eq!(config.settings.connectors["filesystem"]["home"]["include_globs"][0], "*.md");
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let files = ConfigFiles::new(&"# padding\n".repeat(110_000));
    let context = LoadContext { is_trusted: &|_, _| Vec::new(), ..TRUST_ALL };
    let error = Config::load(&files.located, &CliOverrides::default(), context).err().unwrap();
    assert!(error.to_string().contains("larger than 1048576 bytes"), "{error}");
}
