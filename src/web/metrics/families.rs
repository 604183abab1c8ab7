//! Metrics before they are written: families of samples with labels.

use crate::meters::Histogram;

/// Metrics of one name.
pub(super) struct MetricFamily {
    /// Name without the namespace; that of a counter ends with `_total`, except for counters of Atlantis.
    pub(super) name: String,
    pub(super) kind: MetricKind,
    /// One line without quotes.
    pub(super) help: &'static str,
    pub(super) samples: Vec<MetricSample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
    /// Count and sum, without quantiles.
    Summary,
}

impl MetricKind {
    /// Returns the name in both formats.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Summary => "summary",
        }
    }
}

/// One value, or one histogram, with its labels.
pub(super) struct MetricSample {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: MetricValue,
}

pub(super) enum MetricValue {
    Number(f64),
    Histogram(Histogram),
    Summary { count: u64, sum: f64 },
}

/// The families of a page, in order.
pub(super) struct Families(Vec<MetricFamily>);

impl Families {
    pub(super) fn new() -> Families {
        Families(Vec::new())
    }

    pub(super) fn into_vec(self) -> Vec<MetricFamily> {
        self.0
    }

    /// Adds a family, unless it has no samples.
    pub(super) fn add(
        &mut self,
        name: impl Into<String>,
        kind: MetricKind,
        help: &'static str,
        samples: Vec<MetricSample>,
    ) {
        if !samples.is_empty() {
            self.0.push(MetricFamily { name: name.into(), kind, help, samples });
        }
    }

    /// Adds one value without labels.
    pub(super) fn one(&mut self, name: &'static str, kind: MetricKind, help: &'static str, value: f64) {
        self.add(name, kind, help, vec![MetricSample::number(Vec::new(), value)]);
    }

    /// Adds one value, if there is one.
    pub(super) fn some(&mut self, name: &'static str, kind: MetricKind, help: &'static str, value: Option<f64>) {
        self.add(name, kind, help, value.map(|value| MetricSample::number(Vec::new(), value)).into_iter().collect());
    }

    /// Adds one sample for each word of the label.
    pub(super) fn labelled(
        &mut self,
        name: &'static str,
        kind: MetricKind,
        help: &'static str,
        label: &'static str,
        values: &[(&str, f64)],
    ) {
        let sample = |(word, value): &(&str, f64)| MetricSample::number(vec![(label, (*word).to_owned())], *value);
        self.add(name, kind, help, values.iter().map(sample).collect());
    }
}

impl MetricSample {
    pub(super) fn number(labels: Vec<(&'static str, String)>, value: f64) -> MetricSample {
        MetricSample { labels, value: MetricValue::Number(value) }
    }
}
