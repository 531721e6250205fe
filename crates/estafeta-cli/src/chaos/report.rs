//! The report: one page that needs nothing else, with a picture of the whole run.

use std::fmt::Write as _;

use super::Outcome;
use super::picture::{Axis, colour, picture};
use super::verdict::Verdict;
use crate::output::counted;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #6b7280; --paper: #ffffff; --line: #d7dbe0;
  --alive: #cfe3f5; --office: #1f6feb; --published: #bc6c00; --settled: #1a7f37; --good: #1a7f37; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #8b949e; --paper: #0d1117; --line: #30363d;
  --alive: #1c3048; --office: #58a6ff; --published: #e3a008; --settled: #3fb950; --good: #3fb950; --bad: #ff7b72; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1200px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; } th, td { padding: .15rem .9rem .15rem 0; text-align: right; }
th:first-child, td:first-child, .facts td { text-align: left; } th { color: var(--faint); font-weight: normal; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
svg .faint { fill: var(--faint); } .legend span { margin-right: 1rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; border-radius: 2px; }
pre { overflow-x: auto; background: color-mix(in srgb, var(--ink) 6%, transparent); padding: .8rem; }
";

pub fn page(outcome: &Outcome) -> String {
    let verdict = &outcome.verdict;
    let (class, word) = if verdict.is_good() { ("good", "GOOD") } else { ("bad", "BROKEN") };
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>estafeta chaos, seed {seed}</title><style>{STYLE}</style></head><body>\n\
         <h1>estafeta chaos: <span class=\"{class}\">{word}</span></h1>\n\
         <p>{sentence}.</p>\n<p>{copies} copies on {place} for {seconds:.0} s, seed {seed}: {faults}, {messages} published, {errors}.</p>\n",
        seed = verdict.seed,
        sentence = escape(&verdict.sentence()),
        copies = verdict.copies,
        place = escape(&verdict.place),
        seconds = verdict.length.as_secs_f64(),
        faults = counted(verdict.struck() as u64, "fault"),
        messages = counted(verdict.published, "message"),
        errors = counted(verdict.errors, "error"),
    );
    page.push_str(&picture(outcome));
    page.push_str(&legend(verdict));
    page.push_str(&table(verdict));
    page.push_str(&facts(verdict));
    page.push_str(&breaches(verdict));
    page.push_str(&blow_list(outcome));
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
    items.extend(verdict.kinds().map(|kind| item(colour(kind), kind.name())));
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
        "</table>\n<p>The time of a take-over is that in which nobody published. It is put down to the fault that hit the \
         former generator last, and so is a repeat, which is a message whose handling began again because its first copy \
         was lost.</p>\n",
    );
    table
}

fn facts(verdict: &Verdict) -> String {
    let mut facts = String::from("<h2>Checks</h2>\n<table class=\"facts\">");
    for (word, told) in verdict.facts() {
        let _ = writeln!(facts, "<tr><td>{word}</td><td>{}</td></tr>", escape(&told));
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
    for (id, story) in &verdict.stories {
        let _ = writeln!(text, "<h3>The story of #{id}</h3><pre>{}</pre>", escape(&story.join("\n")));
    }
    text
}

fn blow_list(outcome: &Outcome) -> String {
    let axis = Axis::of(outcome);
    let mut list = String::from("<details><summary>Everything that was done</summary><pre>");
    for blow in &outcome.blows {
        let _ =
            writeln!(list, "{:8.3} s  {:<13} {}", axis.seconds(blow.from_ms), blow.kind, escape(&blow.what));
    }
    list.push_str("</pre></details>\n");
    list
}

/// What is foreign to the page cannot break it.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_that_mean_something_in_html_are_escaped() {
        assert_eq!(escape("<script>\"&"), "&lt;script&gt;&quot;&amp;");
    }
}
