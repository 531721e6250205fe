//! `estafeta doctor`: examines a Redis, and says what it means for the promises of a ring.

use std::process::ExitCode;

use anyhow::Result;
use estafeta::{Error, ServerFinding, Severity};
use estafeta_lab::escape::escape;
use estafeta_lab::exit_code::FAILED;
use estafeta_lab::partitions::Partitions;
use estafeta_lab::report::json_line;
use estafeta_lab::text::counted;
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};

use super::{print_result, with_ring};
use crate::settings::Reach;

/// What was found for one ring, or for one partition of it.
struct RingFindings {
    ring: String,
    findings: Vec<ServerFinding>,
}

pub fn run(reach: &Reach, as_json: bool) -> Result<ExitCode> {
    let (redis, parts) = with_ring(reach, async |ring| {
        let redis = ring.endpoint().to_string();
        // Each partition may be on another server. A user who may not ask for them learns that from the check-up.
        let rings = match Partitions::of_damaged(ring.clone()).await {
            Err(Error::Refused { .. }) => vec![ring],
            partitions => partitions?.all,
        };
        let checkups = rings.iter().map(|ring| async move {
            let (ring, findings) = (ring.name().to_string(), ring.checkup().await?);
            Ok::<_, Error>(RingFindings { ring, findings })
        });
        Ok((redis, try_join_all(checkups).await?))
    })?;
    let whole = RingFindings { ring: reach.ring.to_string(), findings: worst_of(&parts) };
    let severity = whole.severity();
    print_result(match as_json {
        true => json_line(&object(&redis, &whole, &parts)),
        false => text(&redis, &whole, &parts),
    })?;
    Ok(match severity {
        Severity::Broken => FAILED.into(),
        _ => ExitCode::SUCCESS,
    })
}

impl RingFindings {
    /// How bad the worst finding is.
    fn severity(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Unknown)
    }

    fn severity_of(&self, subject: &str) -> Option<Severity> {
        let of_subject = self.findings.iter().filter(|finding| finding.subject == subject);
        of_subject.map(|finding| finding.severity).max()
    }
}

/// For each subject, what was found in the partition where it is worst, or in the first of these.
fn worst_of(parts: &[RingFindings]) -> Vec<ServerFinding> {
    let mut worst: Vec<ServerFinding> = Vec::new();
    for finding in parts.iter().flat_map(|part| &part.findings) {
        match worst.iter_mut().find(|known| known.subject == finding.subject) {
            Some(known) if known.severity < finding.severity => *known = finding.clone(),
            Some(_) => {}
            None => worst.push(finding.clone()),
        }
    }
    worst
}

fn object(redis: &str, whole: &RingFindings, parts: &[RingFindings]) -> Value {
    let findings = |part: &RingFindings| part.findings.iter().map(finding_object).collect::<Value>();
    let severity = |part: &RingFindings| part.severity().word();
    let mut all =
        json!({"redis": redis, "ring": whole.ring, "severity": severity(whole), "findings": findings(whole)});
    if parts.len() > 1 {
        let each = parts
            .iter()
            .map(|part| json!({"ring": part.ring, "severity": severity(part), "findings": findings(part)}));
        all["partitions"] = each.collect();
    }
    all
}

fn finding_object(finding: &ServerFinding) -> Value {
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
}

fn text(redis: &str, whole: &RingFindings, parts: &[RingFindings]) -> String {
    let findings = &whole.findings;
    let mut lines = vec![match parts.len() {
        1 => format!("ring {} at {redis}", whole.ring),
        count => format!("ring {} with {count} partitions at {redis}", whole.ring),
    }];
    for finding in findings {
        let (severity, subject) = (finding.severity.word(), spaced(finding.subject));
        // Servers choose some of these words.
        let found = escape(finding.found.as_bytes());
        lines.push(format!("{severity:<8} {subject:<13} {found}: {}", finding.meaning));
        lines.extend(finding.remedy.iter().map(|remedy| format!("{:23}-> {remedy}", "")));
        let is_concerned = |part: &&RingFindings| part.severity_of(finding.subject) == Some(finding.severity);
        let concerned: Vec<&str> = parts.iter().filter(is_concerned).map(|part| part.ring.as_str()).collect();
        if concerned.len() < parts.len() {
            lines.push(format!("{:23}in {}", "", concerned.join(", ")));
        }
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
