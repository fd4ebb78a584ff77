//! The log: one JSON object a line.

use std::{
    fmt::Debug,
    io::{self, Write as _},
};

use serde_json::{Map, Value};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, filter_fn},
    fmt::{
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
    util::SubscriberInitExt as _,
};

/// The runtime's duplicates of our logs of errors and panics.
const DUPLICATES: &str = "lambda_runtime::layers::panic";

/// Starts logging, of this service, at this level.
pub(super) fn start(service: &str, level: Option<&str>) {
    let level = self::level(level);
    let lines = Lines { service: service.to_owned() };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter_fn(move |metadata| is_wanted(metadata, level))))
        .init();
}

fn is_wanted(metadata: &Metadata<'_>, level: LevelFilter) -> bool {
    if metadata.is_span() {
        // Our lines need only the fields of our own spans.
        return metadata.target().starts_with(env!("CARGO_CRATE_NAME"));
    }
    *metadata.level() <= level && metadata.target() != DUPLICATES
}

fn level(name: Option<&str>) -> LevelFilter {
    match name {
        // Lambda's highest level, which nothing here logs at, keeps the errors.
        Some("FATAL") => LevelFilter::ERROR,
        Some(name) => name.parse().unwrap_or(LevelFilter::INFO),
        None => LevelFilter::INFO,
    }
}

/// Writes each event with the fields of the spans around it.
struct Lines {
    service: String,
}

/// The fields of a span or an event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Fields::default();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(Fields(fields)) = span.extensions().get() {
                line.0.extend(fields.clone());
            }
        }
        event.record(&mut line);
        line.put("level", event.metadata().level().as_str());
        line.put("timestamp", now());
        line.put("service", self.service.as_str());
        line.0.entry("location").or_insert_with(|| location(event.metadata()).into());
        let mut text = Value::Object(line.0).to_string();
        text.push('\n');
        // Whole and at once. If the log cannot be written, there is no other place to report it.
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

fn location(metadata: &Metadata<'_>) -> String {
    match metadata.line() {
        Some(line) => format!("{}:{line}", metadata.target()),
        None => metadata.target().to_owned(),
    }
}

/// Now, as RFC 3339 writes it: otherwise Lambda would take every line for one at `INFO`.
pub(super) fn now() -> String {
    let mut now = String::new();
    // It fails only where the text cannot be written, and a String can.
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    now
}

impl Fields {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value);
    }
}
