//! The log, in the style of everything else that is said on stderr: `warning: …`, `error: …`.
//!
//! Lines of level info have no prefix, as what a command says has none; those below have `debug:` or `trace:`.

use crate::masks::MaskedStderr;
use crate::style::{self, Painter};
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Starts the log on stderr; `CTX_LOG` overrides the flags.
pub(crate) fn start(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => "error,rmcp=off",
        // What goes wrong between a client and rmcp is the client's to know.
        (false, 0) => "warn,rmcp=off",
        (false, 1) => {
            "warn,ctx=debug,ctx_core=debug,ctx_http=debug,ctx_knowledge=debug,ctx_luau=debug,ctx_mcp=debug,ctx_openapi=debug,ctx_store=debug,script=debug"
        }
        // At debug level rmcp logs whole messages, including arguments and results.
        (false, _) => "debug,rmcp=info",
    };
    let filter = EnvFilter::try_from_env("CTX_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(MaskedStderr)
        .with_ansi(style::stderr_has_color())
        // Otherwise a log that cannot be written is told on stderr, which panics.
        .log_internal_errors(false)
        .event_format(LineFormat);
    if log.try_init().is_err() {
        // Only in a process that has a log already, which then is the one to use.
    }
}

/// The prefix of a line of this level, as the program's own lines have it.
pub(crate) fn prefix(level: Level, painter: Painter) -> String {
    match level {
        Level::ERROR => painter.paint(style::ERROR, "error:") + " ",
        Level::WARN => painter.paint(style::WARNING, "warning:") + " ",
        Level::INFO => String::new(),
        Level::DEBUG => painter.paint(style::FAINT, "debug:") + " ",
        Level::TRACE => painter.paint(style::FAINT, "trace:") + " ",
    }
}

struct LineFormat;

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line::default();
        event.record(&mut line);
        let painter = Painter::stderr();
        let fields = if line.fields.is_empty() { String::new() } else { format!(" ({})", line.fields) };
        let prefix = prefix(*event.metadata().level(), painter);
        writeln!(writer, "{prefix}{}{}", painter.plain(&line.message), painter.paint(style::FAINT, &fields))
    }
}

/// The message of an event, and its other fields as they are shown after it.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn push(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let separator = if self.fields.is_empty() { "" } else { ", " };
        let written = match field.name() {
            "message" => write!(self.message, "{value}"),
            "error" => write!(self.fields, "{separator}{value}"),
            name => write!(self.fields, "{separator}{name}: {value}"),
        };
        // Writing to a string cannot fail.
        written.unwrap_or_default();
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, format_args!("{value}"));
    }
}
