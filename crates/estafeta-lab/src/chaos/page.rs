//! The HTML report: one self-contained page with a timeline of the whole run.

use std::fmt::Write as _;

use super::ChaosOutcome;
use super::timeline::{TimeAxis, style, timeline};
use super::verdict::Verdict;
use crate::plot::chart;
use crate::plot::svg::escape;
use crate::text::{counted, moment};

/// The style of the page, besides that of its chart.
const STYLE: &str = "
:root { color-scheme: light dark; --alive: #cfe3f5; --office: #1f6feb; --published: #bc6c00; --settled: #1a7f37;
  --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --alive: #1c3048; --office: #58a6ff; --published: #e3a008;
  --settled: #3fb950; --good: #3fb950; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1200px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; } th, td { padding: .15rem .9rem .15rem 0; text-align: right; }
th:first-child, td:first-child, .facts td { text-align: left; } th { color: var(--faint); font-weight: normal; }
.run { color: var(--faint); overflow-wrap: anywhere; } .wide { overflow-x: auto; }
svg { width: 100%; min-width: 56rem; height: auto; } svg text { font-size: 11px; }
.alive { fill: var(--alive); } .office { fill: var(--office); }
.published { stroke: var(--published); } .settled { stroke: var(--settled); }
.legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; border-radius: 2px; }
pre { overflow-x: auto; background: color-mix(in srgb, var(--ink) 6%, transparent); padding: .8rem; }
";

pub fn page(outcome: &ChaosOutcome) -> String {
    let verdict = &outcome.verdict;
    let (class, word) = if verdict.is_good() { ("good", "GOOD") } else { ("bad", "BROKEN") };
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>estafeta chaos, seed {seed}</title><style>{chart_style}{STYLE}</style></head><body>\n\
         <h1>estafeta chaos: <span class=\"{class}\">{word}</span></h1>\n\
         <p>{sentence}.</p>\n<p>{setting}: {faults}, {messages} published, {errors}.</p>\n\
         <p class=\"run\">{date}, estafeta {version}, {redis}: <code>{call}</code></p>\n",
        chart_style = chart::STYLE,
        date = moment(outcome.began_ms),
        version = env!("CARGO_PKG_VERSION"),
        redis = escape(&outcome.redis),
        call = escape(&verdict.call),
        seed = verdict.seed,
        sentence = escape(&verdict.sentence()),
        setting = escape(&verdict.setting()),
        faults = counted(verdict.injected() as u64, "fault"),
        messages = counted(verdict.published, "message"),
        errors = counted(verdict.errors, "error"),
    );
    let _ = writeln!(page, "<div class=\"wide\">{}</div>", timeline(outcome));
    page.push_str(&legend(verdict));
    let _ = writeln!(page, "<div class=\"wide\">{}</div>", table(verdict));
    let _ = writeln!(page, "<div class=\"wide\">{}</div>", facts(verdict));
    page.push_str(&breaches(verdict));
    page.push_str(&fault_list(outcome));
    page.push_str("</body></html>\n");
    page
}

fn legend(verdict: &Verdict) -> String {
    let item = |colour: &str, name: &str| format!("<span><i style=\"background:{colour}\"></i>{name}</span>");
    let mut items = vec![
        item("var(--alive)", "alive"),
        item("var(--office)", "in office"),
        item("var(--published)", "published"),
    ];
    items.push(item("var(--settled)", "settled"));
    items.extend(verdict.kinds().map(|kind| {
        let (colour, letter) = style(kind);
        item(colour, &format!("{letter} {}", kind.name()))
    }));
    format!("<p class=\"legend\">{}</p>\n", items.join("\n"))
}

fn table(verdict: &Verdict) -> String {
    let mut table = String::from("<h2>Faults</h2>\n<table>");
    for (index, cells) in verdict.table().iter().enumerate() {
        let tag = if index == 0 { "th" } else { "td" };
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        let _ = writeln!(table, "<tr>{cells}</tr>");
    }
    table.push_str(
        "</table>\n<p>p50, p99 and max are the times in which no node published before a take-over. A repeat is a message \
         whose handling began again because its first node was lost. Both count for the fault that explains them best: \
         one that hit the lost node, or one that hit Redis.</p>\n",
    );
    table
}

fn facts(verdict: &Verdict) -> String {
    let mut facts = String::from("<h2>Checks</h2>\n<table class=\"facts\">");
    for (name, fact) in verdict.facts() {
        let _ = writeln!(facts, "<tr><td>{name}</td><td>{}</td></tr>", escape(&fact));
    }
    facts.push_str("</table>\n");
    facts
}

fn breaches(verdict: &Verdict) -> String {
    if verdict.is_good() {
        return String::new();
    }
    let mut text = String::from("<h2 class=\"bad\">Broken promises</h2>\n<ul>");
    for breach in verdict.breaches.iter().take(100) {
        let _ = writeln!(text, "<li>{}</li>", escape(&breach.what));
    }
    text.push_str("</ul>\n");
    for story in &verdict.stories {
        let (subject, lines) = (escape(&story.subject()), escape(&story.lines.join("\n")));
        let _ = writeln!(text, "<h3>The story of {subject}</h3><pre>{lines}</pre>");
    }
    text
}

fn fault_list(outcome: &ChaosOutcome) -> String {
    let axis = TimeAxis::of(outcome);
    let mut list = String::from("<details><summary>All injected faults</summary><pre>");
    for fault in &outcome.faults {
        let _ = writeln!(
            list,
            "{:8.3} s  {:<13} {}",
            axis.seconds(fault.from_ms),
            fault.kind,
            escape(&fault.what)
        );
    }
    list.push_str("</pre></details>\n");
    list
}
