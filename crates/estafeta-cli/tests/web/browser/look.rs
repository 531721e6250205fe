//! How the page looks and what a screen reader finds. The pictures are in `target/tmp/web`.

use estafeta_testbed::{Process, RedisServer};
use serde_json::{Value, json};

use super::driver::Browser;
use crate::support::{SOON, WebServer, add_errors, start};

const BODY: &str = r#"{"order":773995,"customer":"c-4762","total":17.50,"trace":9007199254740993,"items":[{"sku":"A-17","n":2}]}"#;

/// A ring with a past: errors of several kinds, a schedule, a generator that was killed.
fn lively_ring(redis: &RedisServer) -> Vec<Process> {
    let reasons = [
        (40, "payment gateway did not answer within 5 s"),
        (20, "body is not JSON: expected `,` at line 1 column 58"),
        (9, "<script>alert(document.cookie)</script> is no customer"),
        (2, "attachment \u{202e}gnp.eciovni\u{202c} is refused"),
    ];
    let mut id = 0;
    for (count, reason) in reasons {
        let errors: Vec<_> = (0..count).map(|n| (id + n + 1, reason, BODY)).collect();
        id += count;
        add_errors(redis, &errors);
    }
    let schedule =
        ["run", "--ring", "orders", "--generate", "echo {}", "--cron", "*/5 * * * *", "--handle", "true"];
    let first = start(redis, &schedule, &[]);
    first.wait_for_line(SOON, |line| line.contains("generator"));
    let nodes = (0..3).map(|_| start(redis, &schedule, &[]));
    let nodes: Vec<Process> = std::iter::once(first).chain(nodes).collect();
    nodes[0].kill();
    nodes
}

#[tokio::test]
async fn everything_has_a_name_fits_its_width_and_is_pictured() {
    let Some(browser) = Browser::start("names, widths and pictures").await else { return };
    let redis = RedisServer::start();
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    let _nodes = lively_ring(&redis);
    for (name, width, height, scheme) in
        [("light", 1440, 900, "light"), ("dark", 1440, 900, "dark"), ("phone", 390, 844, "dark")]
    {
        browser.size(width, height).await;
        browser.colours(scheme).await;
        for (view, hash, shown, opens) in [
            ("ring", "#/", ".members tbody tr", ".members .who"),
            ("errors", "#/errors", ".row .id", ".detail .danger, .row .id"),
            ("schedules", "#/schedules", ".plan h2", "#help"),
        ] {
            browser.open(&format!("{}{hash}", server.url())).await;
            browser.until("the view", &format!("return document.querySelector('{shown}')?.innerText")).await;
            browser.wait_for_text("#fresh", "live").await;
            if view == "ring" {
                let drawn = "return document.querySelector('.strip.tall .line.area')?.getAttribute('d')";
                browser.until("a chart", drawn).await;
            }
            everything_has_a_name(&browser, view).await;
            all_text_can_be_read(&browser, &format!("{view} in {name}")).await;
            browser.picture(&format!("{view}-{name}")).await;
            // The same with a dialog: a member, a question or the open error, the help.
            let find = "s => [...document.querySelectorAll(s)]";
            let open =
                format!("'{opens}'.split(', ').flatMap({find}).find(e => e.offsetParent || e.id).click()");
            browser.js(&open).await;
            browser.until("a dialog", "return document.querySelector('dialog[open]')?.innerText").await;
            everything_has_a_name(&browser, &format!("a dialog of {view}")).await;
            all_text_can_be_read(&browser, &format!("a dialog of {view} in {name}")).await;
            browser.js("document.querySelector('dialog[open]').close()").await;
        }
    }
    for width in [320, 360, 390, 600, 720, 721, 940, 941, 1199, 1200, 1440, 1920] {
        browser.size(width, 900).await;
        for hash in ["#/", "#/errors", "#/schedules"] {
            browser.js(&format!("location.hash = '{hash}'")).await;
            browser.until("the view", "return document.querySelector('.members, .row, .plan')").await;
            let wide = browser.js(TOO_WIDE).await;
            assert_eq!(wide, Value::Null, "{hash} at {width}");
        }
    }
    browser.quit().await;
}

/// What makes a page wider than its window, with the right edge of each such element.
const TOO_WIDE: &str = r#"
    const page = document.documentElement, width = page.clientWidth;
    if (page.scrollWidth <= width) return null;
    const edge = e => Math.round(e.getBoundingClientRect().right);
    const wide = [...document.querySelectorAll('body *')].filter(e => edge(e) > width);
    return [page.scrollWidth, ...wide.map(e => `${edge(e)} ${e.outerHTML.slice(0, 120)}`)];
"#;

/// Compares the colour of each text with what is behind it: 4.5 to 1, or 3 to 1 for large text (WCAG, level AA).
async fn all_text_can_be_read(browser: &Browser, view: &str) {
    const FAINT: &str = r#"
        const parse = text => {
            const n = text.match(/[\d.]+/g).map(Number), scale = text.startsWith('color(') ? 255 : 1;
            return [n[0] * scale, n[1] * scale, n[2] * scale, n[3] ?? 1];
        };
        const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
        const behind = e => e ? over(parse(getComputedStyle(e).backgroundColor), behind(e.parentElement)) : [255, 255, 255, 1];
        const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
        let seen = 0;
        for (let text; (text = texts.nextNode());) {
            const e = text.parentElement, style = getComputedStyle(e), box = e.getBoundingClientRect();
            if (!text.data.trim() || box.width < 2 || !e.checkVisibility({ visibilityProperty: true }) || e.closest(':disabled, option, noscript')) continue;
            const back = behind(e), colour = over(parse(e instanceof SVGElement ? style.fill : style.color), back);
            const [a, b] = [light(colour), light(back)].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
            const size = parseFloat(style.fontSize), isLarge = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
            seen++;
            if (ratio < (isLarge ? 3 : 4.5)) faint.push(`${text.data.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
        }
        return [seen, faint];
    "#;
    let found = browser.js(FAINT).await;
    assert!(found[0].as_u64() > Some(20), "{view} has text: {found}");
    assert_eq!(found[1], json!([]), "{view}");
}

/// Looks at what a screen reader gets: every control and every part needs a name, and a page one heading of the first
/// level.
async fn everything_has_a_name(browser: &Browser, view: &str) {
    const CONTROLS: [&str; 19] = [
        "button",
        "link",
        "checkbox",
        "textbox",
        "searchbox",
        "slider",
        "combobox",
        "tab",
        "dialog",
        "progressindicator",
        "img",
        "option",
        "tablist",
        "tabpanel",
        "region",
        "navigation",
        "table",
        "columnheader",
        "heading",
    ];
    browser.cdp("Accessibility.enable", json!({})).await;
    let tree = browser.cdp("Accessibility.getFullAXTree", json!({})).await;
    let nodes: Vec<&Value> =
        tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] != json!(true)).collect();
    let role = |node: &Value| node["role"]["value"].as_str().unwrap_or_default().to_owned();
    let name = |node: &Value| node["name"]["value"].as_str().unwrap_or_default().trim().to_owned();
    let controls: Vec<&&Value> =
        nodes.iter().filter(|node| CONTROLS.contains(&role(node).as_str())).collect();
    assert!(controls.len() > 2, "{view} has {} controls", controls.len());
    for control in controls {
        assert_ne!(name(control), "", "{view}: a {} without a name: {control}", role(control));
    }
    let firsts = browser.js("return document.querySelectorAll('main h1').length").await;
    assert_eq!(firsts, json!(1), "{view}");
    let ids = "const ids = [...document.querySelectorAll('[id]')].map(e => e.id); return ids.length - new Set(ids).size";
    assert_eq!(browser.js(ids).await, json!(0), "{view}: an id twice");
}
