//! Metrics as an answer, in the format that the client asks for. Prometheus asks for OpenMetrics. Everything else gets
//! the older text format, which all collectors read.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const OLDER_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers with these metrics. `text` is OpenMetrics.
pub fn answer(asked: &HeaderMap, text: String) -> Response {
    let (kind, text) =
        if wants_open_metrics(asked) { (OPEN_METRICS, text) } else { (OLDER_FORMAT, older_format(&text)) };
    let vary = (header::VARY, HeaderValue::from_static("accept"));
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind)), vary], text).into_response()
}

fn wants_open_metrics(asked: &HeaderMap) -> bool {
    let accepted = asked.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_meant =
            parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
        let is_refused = |weight: &str| weight.parse::<f64>().is_ok_and(|weight| weight <= 0.0);
        is_meant && !parts.filter_map(|part| part.strip_prefix("q=")).any(is_refused)
    })
}

/// The same metrics in the older text format. There, the name of a counter or an info has its suffix in every line, an
/// info is a gauge, and units and the end are not marked.
fn older_format(text: &str) -> String {
    let (mut older, mut help) = (String::with_capacity(text.len()), None);
    let mut push = |line: &str| {
        older.push_str(line);
        older.push('\n');
    };
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Its name depends on the type, which comes next.
            help = rest.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            if let Some(help) = help.take() {
                push(&format!("# HELP {name}{suffix} {help}"));
            }
            push(&format!("# TYPE {name}{suffix} {kind}"));
        } else if !line.starts_with("# ") {
            push(line);
        }
    }
    older
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_is_for_clients_that_accept_it() {
        let wants = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            wants_open_metrics(&headers)
        };
        assert!(!wants_open_metrics(&HeaderMap::new()));
        assert!(wants("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
        assert!(wants("text/plain, Application/OpenMetrics-Text; q=0.1"));
        for other in
            ["*/*", "text/plain", "application/openmetrics-text;q=0", "application/openmetrics-text-2"]
        {
            assert!(!wants(other), "{other}");
        }
    }

    #[test]
    fn the_older_format_has_the_same_samples() {
        let text = "# HELP a_build The version.\n# TYPE a_build info\na_build_info{v=\"1\"} 1\n\
                    # HELP a_done Messages.\n# TYPE a_done counter\na_done_total{r=\"# x\"} 2\n\
                    # HELP a_wait_seconds Time.\n# TYPE a_wait_seconds histogram\n# UNIT a_wait_seconds seconds\n\
                    a_wait_seconds_count 0\n# EOF\n";
        assert_eq!(
            older_format(text),
            "# HELP a_build_info The version.\n# TYPE a_build_info gauge\na_build_info{v=\"1\"} 1\n\
             # HELP a_done_total Messages.\n# TYPE a_done_total counter\na_done_total{r=\"# x\"} 2\n\
             # HELP a_wait_seconds Time.\n# TYPE a_wait_seconds histogram\na_wait_seconds_count 0\n"
        );
    }
}
