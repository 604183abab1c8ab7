//! The formats of `/metrics`: Prometheus' text format, and OpenMetrics for scrapers that ask for it.

use super::families::{MetricFamily, MetricKind, MetricSample, MetricValue};
use http::HeaderMap;
use http::header::ACCEPT;
use std::fmt::Write;

/// Format of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exposition {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Exposition {
    /// Returns the format to answer with: the text format, unless the scraper names OpenMetrics and prefers no other text.
    pub(super) fn preferred(headers: &HeaderMap) -> Exposition {
        let (mut open_metrics, mut text) = (0.0, 0.0);
        for range in
            headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|all| all.split(','))
        {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut weight, mut is_known) = (1.0_f64, true);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name.to_ascii_lowercase().as_str() {
                    "q" => weight = value.parse().unwrap_or(0.0),
                    "version" if kind == "application/openmetrics-text" => {
                        is_known = matches!(value.trim_matches('"'), "1.0.0" | "0.0.1");
                    }
                    _ => {}
                }
            }
            match kind.as_str() {
                "application/openmetrics-text" if is_known => open_metrics = weight.max(open_metrics),
                "text/plain" | "text/*" => text = weight.max(text),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= text { Exposition::OpenMetrics } else { Exposition::Text }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Writes the page. Names have letters, digits and underscores only.
    pub(super) fn write(self, families: &[MetricFamily], namespace: &str) -> String {
        let (mut text, namespace) = (String::new(), namespace.replace(['.', '-'], "_"));
        for family in families {
            let name = format!("{namespace}_{}", family.name);
            self.describe(&mut text, &name, family);
            for sample in &family.samples {
                write_sample(&mut text, &name, sample);
            }
        }
        if self == Exposition::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    /// Writes the lines before the samples. In OpenMetrics the family of a counter is named without `_total`; a counter of Atlantis has no
    /// such end, and is of no type there.
    fn describe(self, text: &mut String, name: &str, family: &MetricFamily) {
        let (mut described, mut kind) = (name, family.kind.as_str());
        if self == Exposition::OpenMetrics && family.kind == MetricKind::Counter {
            match name.strip_suffix("_total") {
                Some(stem) => described = stem,
                None => kind = "unknown",
            }
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "# HELP {described} {}\n# TYPE {described} {kind}\n", family.help);
        let unit = ["seconds", "bytes"].into_iter().find(|unit| described.ends_with(&format!("_{unit}")));
        if let Some(unit) = unit.filter(|_| self == Exposition::OpenMetrics) {
            let _ = writeln!(text, "# UNIT {described} {unit}");
        }
    }
}

fn write_sample(text: &mut String, name: &str, sample: &MetricSample) {
    let labels = &sample.labels;
    match &sample.value {
        MetricValue::Number(value) => line(text, (name, ""), labels, None, *value),
        MetricValue::Summary { count, sum } => {
            line(text, (name, "_sum"), labels, None, *sum);
            line(text, (name, "_count"), labels, None, *count as f64);
        }
        MetricValue::Histogram(histogram) => {
            for (bound, count) in histogram.buckets() {
                line(text, (name, "_bucket"), labels, Some(bound), count as f64);
            }
            line(text, (name, "_sum"), labels, None, histogram.sum());
            line(text, (name, "_count"), labels, None, histogram.count() as f64);
        }
    }
}

/// Writes one line. A bound of a bucket is `1.0`, as OpenMetrics wants it, in both formats: it is a label, and names the same series.
fn line(text: &mut String, name: (&str, &str), labels: &[(&'static str, String)], bound: Option<f64>, value: f64) {
    let _ = write!(text, "{}{}", name.0, name.1);
    let mut before = '{';
    for (label, word) in labels {
        let _ = write!(text, "{before}{label}=\"");
        escape(text, word);
        text.push('"');
        before = ',';
    }
    if let Some(bound) = bound {
        let _ = match bound.is_finite() {
            true => write!(text, "{before}le=\"{bound:?}\""),
            false => write!(text, "{before}le=\"+Inf\""),
        };
        before = ',';
    }
    if before == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

/// Writes the value of a label. Both formats escape these three.
fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meters::Histogram;
    use crate::web::metrics::families::Families;
    use insta::assert_snapshot;
    use std::time::Duration;

    fn preferred(accept: &[&str]) -> Exposition {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        Exposition::preferred(&headers)
    }

    #[test]
    fn open_metrics_is_served_to_those_who_ask_for_it() {
        use Exposition::{OpenMetrics, Text};
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            (&[][..], Text),
            (&["*/*"], Text),
            (&["text/html, application/xhtml+xml, */*;q=0.8"], Text),
            (&[prometheus], OpenMetrics),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["Application/OpenMetrics-Text; Version=\"1.0.0\""], OpenMetrics),
            (&["text/plain", "application/openmetrics-text; version=1.0.0"], OpenMetrics),
            (&["text/plain;version=0.0.4, application/openmetrics-text;q=0.5"], Text),
            (&["application/openmetrics-text;q=0"], Text),
            (&["application/openmetrics-text; version=9.0.0"], Text),
            (&["application/openmetrics-text; q=nonsense"], Text),
        ] {
            assert_eq!(preferred(accept), format, "{accept:?}");
        }
    }

    fn families() -> Vec<MetricFamily> {
        let mut histogram = Histogram::new(&[0.5, 60.0]);
        for millis in [100, 700, 90_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let labels = vec![("repository", "a\\b\"c\nd".to_owned())];
        let times = MetricSample { labels: vec![("command", "plan".into())], value: MetricValue::Histogram(histogram) };
        let summary = MetricSample { labels: Vec::new(), value: MetricValue::Summary { count: 3, sum: 1.5 } };
        let mut page = Families::new();
        page.add("runs_total", MetricKind::Counter, "Runs.", vec![MetricSample::number(labels, 2.0)]);
        page.one("commit_bytes_total", MetricKind::Counter, "Bytes.", 4096.0);
        page.add("run_duration_seconds", MetricKind::Histogram, "Times.", vec![times]);
        page.add("cmd_autoplan_execution_time", MetricKind::Summary, "Times.", vec![summary]);
        page.one("project_plan_execution_success", MetricKind::Counter, "Plans.", 1.0);
        page.into_vec()
    }

    #[test]
    fn the_text_format_names_a_counter_as_its_samples() {
        assert_snapshot!(Exposition::Text.write(&families(), "acme.infra-1"), @r##"
        # HELP acme_infra_1_runs_total Runs.
        # TYPE acme_infra_1_runs_total counter
        acme_infra_1_runs_total{repository="a\\b\"c\nd"} 2
        # HELP acme_infra_1_commit_bytes_total Bytes.
        # TYPE acme_infra_1_commit_bytes_total counter
        acme_infra_1_commit_bytes_total 4096
        # HELP acme_infra_1_run_duration_seconds Times.
        # TYPE acme_infra_1_run_duration_seconds histogram
        acme_infra_1_run_duration_seconds_bucket{command="plan",le="0.5"} 1
        acme_infra_1_run_duration_seconds_bucket{command="plan",le="60.0"} 2
        acme_infra_1_run_duration_seconds_bucket{command="plan",le="+Inf"} 3
        acme_infra_1_run_duration_seconds_sum{command="plan"} 90.8
        acme_infra_1_run_duration_seconds_count{command="plan"} 3
        # HELP acme_infra_1_cmd_autoplan_execution_time Times.
        # TYPE acme_infra_1_cmd_autoplan_execution_time summary
        acme_infra_1_cmd_autoplan_execution_time_sum 1.5
        acme_infra_1_cmd_autoplan_execution_time_count 3
        # HELP acme_infra_1_project_plan_execution_success Plans.
        # TYPE acme_infra_1_project_plan_execution_success counter
        acme_infra_1_project_plan_execution_success 1
        "##);
    }

    #[test]
    fn open_metrics_has_units_an_end_and_counters_by_their_stem() {
        assert_snapshot!(Exposition::OpenMetrics.write(&families(), "tidelock"), @r##"
        # HELP tidelock_runs Runs.
        # TYPE tidelock_runs counter
        tidelock_runs_total{repository="a\\b\"c\nd"} 2
        # HELP tidelock_commit_bytes Bytes.
        # TYPE tidelock_commit_bytes counter
        # UNIT tidelock_commit_bytes bytes
        tidelock_commit_bytes_total 4096
        # HELP tidelock_run_duration_seconds Times.
        # TYPE tidelock_run_duration_seconds histogram
        # UNIT tidelock_run_duration_seconds seconds
        tidelock_run_duration_seconds_bucket{command="plan",le="0.5"} 1
        tidelock_run_duration_seconds_bucket{command="plan",le="60.0"} 2
        tidelock_run_duration_seconds_bucket{command="plan",le="+Inf"} 3
        tidelock_run_duration_seconds_sum{command="plan"} 90.8
        tidelock_run_duration_seconds_count{command="plan"} 3
        # HELP tidelock_cmd_autoplan_execution_time Times.
        # TYPE tidelock_cmd_autoplan_execution_time summary
        tidelock_cmd_autoplan_execution_time_sum 1.5
        tidelock_cmd_autoplan_execution_time_count 3
        # HELP tidelock_project_plan_execution_success Plans.
        # TYPE tidelock_project_plan_execution_success unknown
        tidelock_project_plan_execution_success 1
        # EOF
        "##);
    }
}
