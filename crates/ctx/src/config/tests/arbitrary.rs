//! Property tests: any text either loads or is an error, without a panic, and untrusted variables are never expanded.

use super::untrusted::ConfigFiles;
use proptest::prelude::*;

/// Fragments of TOML, valid and invalid, to build configurations from.
const PIECES: &[&str] = &[
    "[server]\n",
    "[[server]]\n",
    "[connectors.filesystem.x]\n",
    "[mcp_servers.\"a.b\"]\n",
    "[apis.x]\n",
    "[frozen_params]\n",
    "[embedding]\n",
    "[db]\n",
    "[agents.inline.x]\n",
    "[tools.script.x]\n",
    "root = \"docs\"\n",
    "root = \"${KEY}\"\n",
    "bind = \"${KEY}\"\n",
    "token = \"${KEY}\"\n",
    "allowed_hosts = [\"${KEY}\", { a = \"${KEY}\" }]\n",
    "url = \"https://x/${KEY}\"\n",
    "path = \"${KEY:-x}\"\n",
    "command = \"x\"\nargs = [\"$${KEY}\", \"${KEY}\"]\n",
    "headers.x.y = \"${KEY}\"\n",
    "description = \"${KEY}\"\nsystem_prompt = \"${KEY}\"\n",
    "mode = \"${KEY}\"\n",
    "spec = \"a.yaml\"\nauth_env = \"KEY\"\n",
    "a.b.c = { d = [[\"${KEY}\"]] }\n",
    "\u{feff}",
    "= \n",
    "\"\"\"\n",
];

fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        9 => prop::sample::select(PIECES).prop_map(str::to_owned),
        1 => "\\PC{0,12}\n",
    ];
    prop_oneof![prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat()), any::<String>()]
}

proptest! {
    #[test]
    fn nothing_that_is_not_trusted_is_expanded(text in texts()) {
        let files = ConfigFiles::new(&text);
        if let Ok(config) = files.try_load(&|_, requests| vec![false; requests.len()]) {
            let left = config.tree.to_json().to_string();
            prop_assert!(!left.contains("hunter2"), "{text}: {left}");
        }
        // With trust it may fail, but must not panic.
        let _ = files.try_load(&|_, requests| vec![true; requests.len()]);
    }
}
