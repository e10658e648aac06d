//! Invalid scripts, and the error messages about them.

use crate::Test;
use crate::bench::{Bench, problem_message};

pub(crate) const TESTS: &[Test] = tests!(problems:
    an_invalid_script_is_reported_with_its_line,
    a_script_of_another_kind_or_name_is_refused,
    an_unreadable_file_is_reported,
    other_fields_of_the_table_are_ignored,
    a_script_cannot_reach_anything_while_it_is_loaded,
    a_script_that_does_not_finish_loading_is_an_error,
);

async fn an_invalid_script_is_reported_with_its_line() {
    let bench = Bench::new();
    for (source, start) in [
        ("tool = {\n  name = \n}", "tools/x.lua:3: "),
        ("local a = nil\na.b = 1", "tools/x.lua:2: attempt to index nil"),
        ("goto x", "tools/x.lua:1: "),
        ("x = 1", "tools/x.lua: the script must define the global table `tool`"),
        (
            "tool = { name = 'x' }",
            "tools/x.lua: the script must define the function tool.execute(params, context)",
        ),
        (
            "tool = { name = 'x', parameters = { { name = 'a', type = 'text' } }, execute = print }",
            "tools/x.lua: tool.parameters[1] (`a`): there is no type `text`",
        ),
        (
            "tool = { name = 'x', description = 5, execute = print }",
            "tools/x.lua: tool.description must be a string",
        ),
        (
            "tool = { name = 'x', annotations = { read_only = 1 }, execute = print }",
            "tools/x.lua: tool.annotations.read_only",
        ),
        (
            "tool = { name = 'x', tags = 'one', execute = print }",
            "tools/x.lua: tool.tags must be a list of strings, it is",
        ),
        (
            "tool = { name = 'x', tags = { 'one', 2 }, execute = print }",
            "tools/x.lua: each of tool.tags must be a string, one is",
        ),
        (
            "tool = { name = 'x', tags = { ' one' }, execute = print }",
            "tools/x.lua: each of tool.tags must have 1 to 64 bytes",
        ),
    ] {
        let message = problem_message(bench.scripts.tool(&bench.script("x", source)).await);
        assert!(message.starts_with(start), "{source}: {message}");
        assert!(!message.contains(bench.outside().to_str().unwrap()), "{message}");
    }
}

async fn a_script_of_another_kind_or_name_is_refused() {
    let bench = Bench::new();
    let settings = bench.script("x", "tool = { name = 'y', execute = print }");
    let message = problem_message(bench.scripts.tool(&settings).await);
    assert_eq!(
        message,
        "tools/x.lua: tool.name is `y` and the configuration calls it `x`: they must be the same"
    );
    let message = problem_message(bench.scripts.connector(&settings).await);
    assert_eq!(
        message,
        "tools/x.lua: the script must define the global table `connector`; it defines `tool`"
    );
    let settings = bench.script("x", "tool = { execute = print }");
    assert_eq!(
        problem_message(bench.scripts.tool(&settings).await),
        "tools/x.lua: tool.name is missing: it must be \"x\""
    );
    // `describe` accepts a script of any kind and name.
    assert_eq!(bench.scripts.describe(&settings).await.unwrap().kind, "tool");
}

async fn an_unreadable_file_is_reported() {
    let bench = Bench::new();
    let mut settings = bench.script("x", "");
    settings.path = bench.outside().join("none.lua");
    let message = problem_message(bench.scripts.tool(&settings).await);
    assert!(message.starts_with("tools/x.lua: the script cannot be read: No such file"), "{message}");
    settings.path = bench.tools();
    assert_eq!(
        problem_message(bench.scripts.tool(&settings).await),
        "tools/x.lua: the script cannot be read: it is not a file"
    );
    let settings = bench.script("x", &" ".repeat((256 << 10) + 1));
    assert!(problem_message(bench.scripts.tool(&settings).await).ends_with("it is larger than 256 KiB"));
    let mut settings = bench.script("x", "tool = { name = 'x', execute = print }");
    settings.allow_hosts = vec!["[".to_owned()];
    assert!(problem_message(bench.scripts.tool(&settings).await).starts_with("tools/x.lua: allow_hosts: "));
}

async fn a_script_cannot_reach_anything_while_it_is_loaded() {
    let bench = Bench::new();
    let message =
        problem_message(bench.scripts.tool(&bench.script("x", "http.get('http://127.0.0.1:1/')")).await);
    assert!(message.starts_with("tools/x.lua:1: not available while the script is loaded"), "{message}");
}

async fn a_script_that_does_not_finish_loading_is_an_error() {
    let bench = Bench::new();
    let message = problem_message(bench.scripts.tool(&bench.script("x", "while true do end")).await);
    assert_eq!(message, "tools/x.lua: it took longer than 10 seconds to load");
}

async fn other_fields_of_the_table_are_ignored() {
    let bench = Bench::new();
    let source = "tool = { name = 'x', helpers = { f = function() end }, 1, 2, cache = setmetatable({}, {}) }
        function tool.execute() return 1 end";
    bench.scripts.tool(&bench.script("x", source)).await.map(drop).unwrap();
}
