//! Installs the programs that the checks need under `target/tools`.

mod node;
mod python;

pub use node::packages;
pub(crate) use node::{node, path_with};

use crate::run::{cargo, succeed, target};
use anyhow::{Context, Result, ensure};
use python::python_environment;
use std::path::{Path, PathBuf};
use std::process::Command;

const MOTO_VERSION: &str = "5.2.5";
/// The tested versions of the official MCP SDK for Python: the newest of each major version.
pub(crate) const PYTHON_SDKS: [&str; 2] = ["1.30.0", "2.3.0"];

/// Installs all tools.
pub(crate) fn install_all() -> Result<()> {
    install_for_tests()?;
    conformance_suite()?;
    for version in PYTHON_SDKS {
        python_sdk(version)?;
    }
    typescript_sdks()?;
    programs().map(drop)
}

/// Installs the tools that the tests need besides cargo and git.
pub(crate) fn install_for_tests() -> Result<()> {
    install_strace()?;
    install_tmux()?;
    install_moto()?;
    install_mcp_servers()?;
    install_function_descriptions()?;
    build_luau_check()
}

/// `strace`, with which tests record the system calls of `ctx` in a hostile repository; Linux only.
fn install_strace() -> Result<()> {
    match cfg!(target_os = "linux") {
        true => ensure_system_program("strace", "--version", "tests of hostile repositories"),
        false => Ok(()),
    }
}

/// `tmux`, the terminal in which tests answer prompts and press Ctrl-C.
fn install_tmux() -> Result<()> {
    ensure_system_program("tmux", "-V", "tests of what a person sees in a terminal")
}

/// Ensures that a system program exists; installs it with apt if possible.
fn ensure_system_program(name: &str, version_flag: &str, needed_by: &str) -> Result<()> {
    let is_installed =
        || Command::new(name).arg(version_flag).output().is_ok_and(|output| output.status.success());
    if is_installed() {
        return Ok(());
    }
    let apt = |arguments: &[&str]| {
        Command::new("apt-get").args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let installed = apt(&["install", "-y", name]) || (apt(&["update"]) && apt(&["install", "-y", name]));
    ensure!(
        installed && is_installed(),
        "install `{name}` with the system's package manager: {needed_by} need it"
    );
    Ok(())
}

/// Official MCP servers that tests use as upstreams; the tests know their path. Versions: `clients/servers`.
fn install_mcp_servers() -> Result<()> {
    packages("mcp-servers", Path::new("clients/servers")).map(drop)
}

/// The OpenAPI description of GitHub, with many real functions; the tests know its path. Version:
/// `clients/functions`.
fn install_function_descriptions() -> Result<()> {
    packages("functions", Path::new("clients/functions")).map(drop)
}

/// The Luau type checker, built from the language's sources; the tests know its path. Version:
/// `clients/luau`.
fn build_luau_check() -> Result<()> {
    let mut build = cargo(&["build", "--quiet", "--locked", "--manifest-path", "clients/luau/Cargo.toml"]);
    succeed(build.arg("--target-dir").arg(target().join("tools/luau")))
        .context("the type checker of Luau could not be built; it needs a C++ compiler")
}

/// The official MCP conformance suite, a Node script. Version: `conformance/suite`.
pub(crate) fn conformance_suite() -> Result<PathBuf> {
    let modules = packages("conformance", Path::new("conformance/suite"))?;
    Ok(modules.join("@modelcontextprotocol/conformance/dist/index.js"))
}

/// A Python interpreter with this version of the official MCP SDK.
pub(crate) fn python_sdk(version: &str) -> Result<PathBuf> {
    let major = version.split('.').next().unwrap_or_default();
    let check = format!("import importlib.metadata as m; assert m.version('mcp') == '{version}'");
    python_environment(&format!("mcp-python-{major}"), &format!("mcp=={version}"), &check)
}

/// A folder from which scripts can import both major versions of the official MCP SDK for TypeScript.
/// Versions: `clients/typescript`.
pub(crate) fn typescript_sdks() -> Result<PathBuf> {
    let modules = packages("mcp-node", Path::new("clients/typescript"))?;
    Ok(modules.with_file_name(""))
}

/// Packages of popular MCP clients: a download of about 430 MB. Versions: `clients/programs`.
pub(crate) fn programs() -> Result<PathBuf> {
    packages("mcp-programs", Path::new("clients/programs"))
}

/// moto, an S3 service for tests, in a Python environment of its own; the tests know its path.
fn install_moto() -> Result<()> {
    if std::env::var_os("MOTO_PYTHON").is_some() {
        return Ok(());
    }
    let requirement = format!("moto[server]=={MOTO_VERSION}");
    let check = format!("import moto.server, moto; assert moto.__version__ == '{MOTO_VERSION}'");
    python_environment("moto", &requirement, &check).context(
        "the tests of the S3 connector need moto; with `pip install 'moto[server]'` elsewhere, set MOTO_PYTHON to \
         that Python",
    )?;
    Ok(())
}
