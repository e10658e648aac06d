//! The log on stderr, in the format of the program's other messages: `warning: …`, `error: …`.
//!
//! Info lines have no prefix, like the messages of commands; lower levels have `debug:` or `trace:`.

use crate::masks::MaskedStderr;
use crate::style::{self, Painter};
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Installs the log on stderr; `CTX_LOG` overrides the flags.
pub(crate) fn start(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => "error,rmcp=off",
        // rmcp's warnings concern the client's protocol errors, which the client receives itself.
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
        // The subscriber reports write errors with `eprintln!`, which panics if stderr is closed.
        .log_internal_errors(false)
        .event_format(LineFormat);
    if log.try_init().is_err() {
        // A log is installed already; it stays.
    }
}

/// The prefix of a line of this level.
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
        let mut line = EventLine::default();
        event.record(&mut line);
        let painter = Painter::stderr();
        let fields = if line.fields.is_empty() { String::new() } else { format!(" ({})", line.fields) };
        let prefix = prefix(*event.metadata().level(), painter);
        writeln!(writer, "{prefix}{}{}", painter.plain(&line.message), painter.paint(style::FAINT, &fields))
    }
}

/// An event's message, and its other fields in the format for display.
#[derive(Default)]
struct EventLine {
    message: String,
    fields: String,
}

impl EventLine {
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

impl Visit for EventLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, format_args!("{value}"));
    }
}
