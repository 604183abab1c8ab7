//! Logs of the server itself: one line an event, readable on a terminal, JSON elsewhere.

mod cloud;

use crate::store::audit;
use cloud::CloudLines;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::FormatTime;

/// Where the lines go.
pub(super) enum To {
    Stdout,
    Stderr,
    /// To standard output, which Cloud Logging reads; the project that traces belong to, if it is known.
    Cloud(Option<String>),
}

/// Starts logging at this level (`debug`, `info`, `warn`, `error`). A second call changes nothing.
pub(super) fn start(level: &str, to: To) {
    // Other crates' debug lines are of no use to an operator, and hyper's come by the thousand.
    // Who runs a command by hand needs no audit log of it.
    let audited = if matches!(to, To::Stderr) { "off" } else { "info" };
    let directives = format!("warn,tidelock={level},{}={audited}", audit::TARGET);
    let filter = EnvFilter::try_new(directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    let started = match to {
        To::Stderr => {
            let colours = std::io::stderr().is_terminal();
            builder.with_writer(std::io::stderr).with_ansi(colours).compact().with_timer(LogTime).try_init()
        }
        To::Stdout if std::io::stdout().is_terminal() => builder.compact().with_timer(LogTime).try_init(),
        To::Stdout => builder.json().flatten_event(true).with_span_list(false).try_init(),
        To::Cloud(project) => builder.fmt_fields(JsonFields::new()).event_format(CloudLines { project }).try_init(),
    };
    drop(started);
}

/// The time of day where the person sits: who looks at a terminal knows the date.
struct LogTime;

impl FormatTime for LogTime {
    fn format_time(&self, line: &mut Writer<'_>) -> std::fmt::Result {
        write!(line, "{}", jiff::Zoned::now().strftime("%H:%M:%S"))
    }
}

/// The same lines as on standard output, elsewhere.
#[cfg(test)]
pub(super) fn json_lines<W>(writer: W) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt().with_target(false).json().flatten_event(true).with_writer(writer).finish()
}
