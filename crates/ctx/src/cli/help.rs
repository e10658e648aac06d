//! The `Examples:` section at the end of each command's help.

use clap::builder::Styles;

/// Formats examples for clap's `after_help`, in the style of clap's own sections. Each example is an explanation and
/// the command line below it.
pub(crate) fn examples(examples: &[(&str, &str)]) -> String {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let example =
        |(explanation, line): &(&str, &str)| format!("  # {explanation}\n  {literal}{line}{literal:#}");
    let examples: Vec<String> = examples.iter().map(example).collect();
    format!("{header}Examples:{header:#}\n{}", examples.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, definition};
    use clap::{Command, Parser};

    /// Maximum width of a line, so that the generated reference wraps none.
    const WIDTH_MAX: usize = 92;

    /// The words of a command line, up to the first pipe or redirection.
    fn words(line: &str) -> Vec<String> {
        let words = shlex::split(line).unwrap_or_else(|| panic!("a quote is not closed: {line}"));
        words.into_iter().take_while(|word| !["|", "<", ">"].contains(&word.as_str())).collect()
    }

    /// Checks the examples of a command and of its subcommands; returns the number of commands.
    fn check(command: &Command, path: &str) -> usize {
        let help = command.clone().term_width(WIDTH_MAX).render_long_help().to_string();
        let (_, examples) = help
            .split_once("\nExamples:\n")
            .unwrap_or_else(|| panic!("`{path} --help` has no examples:\n{help}"));
        let lines: Vec<&str> = examples.lines().filter_map(|line| line.strip_prefix("  ctx ")).collect();
        assert!((2..=3).contains(&lines.len()), "`{path} --help` has {} examples", lines.len());
        for line in lines {
            let line = format!("ctx {line}");
            assert!(line.len() + 2 <= WIDTH_MAX, "too long: {line}");
            assert!(format!("{line} ").starts_with(&format!("{path} ")), "`{path} --help` has `{line}`");
            if let Err(error) = Cli::try_parse_from(words(&line)) {
                panic!("`{path} --help` has an example that cannot be parsed: {line}\n{error}");
            }
        }
        let children = command.get_subcommands().filter(|child| !child.is_hide_set());
        children.map(|child| check(child, &format!("{path} {}", child.get_name()))).sum::<usize>() + 1
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let commands = check(&definition(), "ctx");
        assert!(commands > 40, "{commands}");
    }
}
