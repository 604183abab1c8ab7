//! Log lines in the format of Cloud Logging: `severity`, and the trace of the request that a line belongs to.
//! (cloud.google.com/logging/docs/structured-logging)

use serde_json::{Map, Value, json};
use std::fmt;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

const TRACE: &str = "logging.googleapis.com/trace";

/// Formatter of one JSON object per line.
pub(super) struct CloudLines {
    /// Project of the traces; without it only their id is logged.
    pub(super) project: Option<String>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, JsonFields> for CloudLines {
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        for span in ctx.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<FormattedFields<JsonFields>>()
                && let Ok(Value::Object(fields)) = serde_json::from_str(&fields.fields)
            {
                line.extend(fields);
            }
        }
        if let (Some(Value::String(trace)), Some(project)) = (line.get("trace"), &self.project) {
            let name = format!("projects/{project}/traces/{trace}");
            line.remove("trace");
            line.insert(TRACE.into(), name.into());
        }
        event.record(&mut Fields(&mut line));
        line.insert("severity".into(), severity(*event.metadata().level()).into());
        line.insert("time".into(), jiff::Timestamp::now().to_string().into());
        writeln!(writer, "{}", Value::Object(line))
    }
}

fn severity(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

/// Collector of an event's fields as JSON.
struct Fields<'a>(&'a mut Map<String, Value>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().into(), json!(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_severity_message_fields_and_the_trace_of_its_request() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(JsonFields::new())
            .event_format(CloudLines { project: Some("tide".into()) })
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(count = 3, who = "ada \"x\"\n", ok = true, "turned {}", "away");
            let request = tracing::info_span!("request", id = "r1", trace = tracing::field::Empty);
            request.record("trace", "105445aa7843bc8bf206b12000100000");
            let _inside = request.entered();
            tracing::info!("inside");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let mut read: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for line in &mut read {
            let time = line.as_object_mut().unwrap().remove("time").unwrap();
            assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
        }
        let first =
            json!({"severity": "WARNING", "message": "turned away", "count": 3, "who": "ada \"x\"\n", "ok": true});
        let trace = "projects/tide/traces/105445aa7843bc8bf206b12000100000";
        assert_eq!(read, [first, json!({"severity": "INFO", "message": "inside", "id": "r1", TRACE: trace})]);
    }
}
