//! Logs of the server itself: one line per event, readable on a terminal, JSON elsewhere.

mod cloud;

use crate::process::Redactor;
use crate::store::audit;
use cloud::CloudLines;
use std::io::{self, IsTerminal, Write};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::time::FormatTime;

/// Destination of the log lines.
pub(super) enum To {
    Stdout,
    Stderr,
    /// Standard error, with secrets masked. It may be closed.
    Masked(Redactor),
    /// Standard output, which Cloud Logging reads; with the project of the traces, if it is known.
    Cloud(Option<String>),
}

/// Starts logging at this level (`debug`, `info`, `warn`, `error`). A second call changes nothing.
pub(super) fn start(level: &str, to: To) {
    // Other crates' debug lines are of no use to an operator, and hyper's come by the thousand.
    // A person who runs a command by hand needs no audit log of it.
    let audited = if matches!(to, To::Stderr | To::Masked(_)) { "off" } else { "info" };
    // The client of Kubernetes would quote answers, which have the keys of jobs.
    let directives = format!("warn,kube_client=error,tidelock={level},{}={audited}", audit::TARGET);
    let filter = EnvFilter::try_new(directives).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    let started = match to {
        To::Stderr => {
            let colours = std::io::stderr().is_terminal();
            builder.with_writer(std::io::stderr).with_ansi(colours).compact().with_timer(LogTime).try_init()
        }
        To::Masked(redactor) => {
            let writer = move || MaskedStderr(redactor.clone());
            builder.with_writer(writer).with_ansi(false).compact().with_timer(LogTime).try_init()
        }
        To::Stdout if std::io::stdout().is_terminal() => builder.compact().with_timer(LogTime).try_init(),
        To::Stdout => builder.json().flatten_event(true).with_span_list(false).try_init(),
        To::Cloud(project) => builder.fmt_fields(JsonFields::new()).event_format(CloudLines { project }).try_init(),
    };
    drop(started);
}

/// Writes each event as one masked text. An error does not reach the subscriber, which would panic if standard error is closed.
struct MaskedStderr(Redactor);

impl Write for MaskedStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = self.0.redact(&String::from_utf8_lossy(bytes));
        let _ = io::stderr().write_all(text.as_bytes());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Local time of day, without the date, for a person at a terminal.
struct LogTime;

impl FormatTime for LogTime {
    fn format_time(&self, line: &mut Writer<'_>) -> std::fmt::Result {
        write!(line, "{}", jiff::Zoned::now().strftime("%H:%M:%S"))
    }
}

/// Returns a subscriber that writes the lines of standard output to another writer.
#[cfg(test)]
pub(super) fn json_lines<W>(writer: W) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt().with_target(false).json().flatten_event(true).with_writer(writer).finish()
}
