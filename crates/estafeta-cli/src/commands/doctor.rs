//! `estafeta doctor`: examines a Redis, and says what it means for the promises of a ring.

use std::process::ExitCode;

use anyhow::Result;
use estafeta::{ServerFinding, Severity};
use estafeta_lab::escape::escape;
use estafeta_lab::exit_code::FAILED;
use estafeta_lab::report::json_line;
use estafeta_lab::text::counted;
use serde_json::{Map, Value, json};

use super::{print_result, with_ring};
use crate::settings::Reach;

pub fn run(reach: &Reach, as_json: bool) -> Result<ExitCode> {
    let (redis, findings) =
        with_ring(reach, async |ring| Ok((ring.endpoint().to_string(), ring.checkup().await?)))?;
    let ring = reach.ring.as_str();
    print_result(match as_json {
        true => json_line(&object(&redis, ring, &findings)),
        false => text(&redis, ring, &findings),
    })?;
    Ok(match worst(&findings) {
        Severity::Broken => FAILED.into(),
        _ => ExitCode::SUCCESS,
    })
}

fn worst(findings: &[ServerFinding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Unknown)
}

fn object(redis: &str, ring: &str, findings: &[ServerFinding]) -> Value {
    let severity = worst(findings).word();
    let objects: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let figures: Map<String, Value> =
                finding.figures.iter().map(|(name, figure)| ((*name).to_owned(), json!(figure))).collect();
            json!({
                "subject": finding.subject,
                "severity": finding.severity.word(),
                "found": finding.found,
                "meaning": finding.meaning,
                "remedy": finding.remedy,
                "figures": figures,
            })
        })
        .collect();
    json!({"redis": redis, "ring": ring, "severity": severity, "findings": objects})
}

fn text(redis: &str, ring: &str, findings: &[ServerFinding]) -> String {
    let mut lines = vec![format!("ring {ring} at {redis}")];
    for finding in findings {
        let (severity, subject) = (finding.severity.word(), spaced(finding.subject));
        // Servers choose some of these words.
        let found = escape(finding.found.as_bytes());
        lines.push(format!("{severity:<8} {subject:<13} {found}: {}", finding.meaning));
        lines.extend(finding.remedy.iter().map(|remedy| format!("{:23}-> {remedy}", "")));
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count() as u64;
    lines.push(match (count(Severity::Broken), count(Severity::Warning)) {
        (0, 0) => "a ring keeps its promises on this Redis".to_owned(),
        (0, warnings) => {
            format!("a ring keeps its promises on this Redis, with {}", counted(warnings, "warning"))
        }
        (broken, warnings) => format!(
            "a ring cannot keep its promises on this Redis: {} broken, {}",
            broken,
            counted(warnings, "warning")
        ),
    });
    lines.join("\n")
}

/// A word in camelCase as several words: `minReplicas` becomes `min replicas`.
fn spaced(subject: &str) -> String {
    let mut words = String::new();
    for c in subject.chars() {
        if c.is_ascii_uppercase() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}
