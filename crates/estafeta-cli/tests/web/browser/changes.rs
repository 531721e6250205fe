//! Errors in the page: hostile text, retry, drop, many at once, downloads, keys, read-only.

use estafeta_testbed::{RedisServer, eventually};
use serde_json::{Value, json};
use thirtyfour::Key;

use super::driver::Browser;
use crate::support::{SOON, WebServer, add_errors, add_many_errors, changes, start};

const EVIL: &str =
    "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\u{1b}[31m\u{202e}gnp.exe\u{202c}";

/// Nothing of the text became an element, and all of it is there.
async fn is_only_text(browser: &Browser, selector: &str) {
    browser.wait_for_text(selector, "<script>window.hacked=1</script><img src=x").await;
    let found = browser.js("return [window.hacked ?? null, document.querySelectorAll('main script, main img, dialog script, dialog img').length]").await;
    assert_eq!(found, json!([null, 0]), "{selector}");
    let text = browser.text(selector).await;
    assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{202c}']), "{selector}: {text:?}");
}

#[tokio::test]
async fn hostile_text_is_shown_as_text_in_every_view() {
    let Some(browser) = Browser::start("hostile text").await else { return };
    let redis = RedisServer::start();
    let json_body = format!("{{\"note\":{}}}", json!(EVIL));
    add_errors(&redis, &[(1, EVIL, EVIL), (2, EVIL, &json_body)]);
    let node = start(&redis, &["run", "--ring", "orders", "--error-rate", "0"], &[]);
    node.wait_for_line(SOON, |line| line.starts_with("joined as member"));
    let mut connection = redis.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("{orders}:member:*").query(&mut connection).unwrap();
    for key in keys {
        redis::cmd("HSET").arg(&key).arg("host").arg(EVIL).exec(&mut connection).unwrap();
    }
    let mut add = |fields: &[(&str, &str)]| {
        redis::cmd("XADD").arg("{orders}:events").arg("*").arg(fields).exec(&mut connection).unwrap();
    };
    add(&[("kind", "joined"), ("member", "99"), ("role", "node"), ("host", EVIL), ("pid", "7")]);
    add(&[("kind", "source-failed"), ("member", "99"), ("in-a-row", "3"), ("reason", EVIL)]);
    add(&[("kind", "dropped"), ("count", "3"), ("by", EVIL)]);
    add(&[("kind", EVIL)]);
    redis::cmd("SET").arg("{orders}:checkpoint").arg(EVIL).exec(&mut connection).unwrap();
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    browser.open(&server.url()).await;
    is_only_text(&browser, ".members .c-host bdi").await;
    is_only_text(&browser, "[data-kpi=generator] .note").await;
    let strange = "return [...document.querySelectorAll('.events li')].filter(e => e.innerText.includes('<script>window.hacked=1</script><img src=x') && e.innerText.includes('U+202E')).length";
    browser.until("four strange events", &format!("{strange} === 4")).await;
    is_only_text(&browser, ".events").await;
    browser.js("document.querySelector('.members .who').click()").await;
    is_only_text(&browser, "#drawer .kv").await;
    browser.js("document.getElementById('drawer').close(); location.hash = '#/errors?open=1'").await;
    for selector in [".groups .why", ".rows .reason", ".rows .body", ".detail-top .why"] {
        is_only_text(&browser, selector).await;
        browser.wait_for_text(selector, "U+001B").await;
    }
    browser.click("[role=tab]", "Text").await;
    is_only_text(&browser, ".body-view").await;
    browser.click("[role=tab]", "Hex").await;
    browser.wait_for_text(".body-view.hex", "3c 73 63 72 69 70 74").await;
    browser.js("location.hash = '#/errors?open=2'").await;
    browser.click("[role=tab]", "JSON as received").await;
    browser.wait_for_text(".body-view .k", "\"note\"").await;
    is_only_text(&browser, ".body-view").await;
    // A generator without a schedule would delete this one.
    node.kill();
    let plan =
        json!({"cron": "0 0 * * *", "zone": "UTC", "missed": "skip", "maxAgeMs": 0, "overlap": "queue"});
    let mut connection = redis.connect();
    redis::cmd("HSET")
        .arg("{orders}:schedule")
        .arg(EVIL)
        .arg(plan.to_string())
        .exec(&mut connection)
        .unwrap();
    browser.js("location.hash = '#/schedules'").await;
    for selector in [".plan h2", ".checkpoint pre"] {
        is_only_text(&browser, selector).await;
    }
    browser.quit().await;
}

#[tokio::test]
async fn one_error_is_retried_and_one_dropped_after_a_question() {
    let Some(browser) = Browser::start("retry and drop").await else { return };
    let redis = RedisServer::start();
    add_many_errors(&redis, 5);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    browser.open(&format!("{}#/errors", server.url())).await;
    browser.wait_for_text(".detail-top h2", "#5").await;
    browser.click(".detail button", "Retry").await;
    browser.wait_for_text("#ask h2", "Retry 1 error?").await;
    browser.click("#ask button", "Cancel").await;
    browser.click(".detail button", "Drop").await;
    browser.click("#ask button", "Drop 1 error").await;
    browser.wait_for_text(".detail-top h2", "#4").await;
    browser.click(".detail button", "Retry").await;
    browser.click("#ask button", "Retry 1 error").await;
    browser.wait_for_text(".detail-top h2", "#3").await;
    eventually(SOON, "both changes", || (changes(&server).len() == 2).then_some(()));
    assert_eq!(changes(&server), [json!(["dropped", 1, "web"]), json!(["retried", 1, "web"])]);
    let ring = server.json("/api/rings/orders");
    assert_eq!([&ring["errorsKept"], &ring["waiting"], &ring["dropped"]], [&json!(3), &json!(1), &json!(1)]);
    browser.quit().await;
}

#[tokio::test]
async fn the_error_that_is_read_stays_open_when_newer_ones_come() {
    let Some(browser) = Browser::start("newer errors").await else { return };
    let redis = RedisServer::start();
    add_many_errors(&redis, 5);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    browser.open(&format!("{}#/errors", server.url())).await;
    browser.wait_for_text(".detail-top h2", "#5").await;
    add_errors(&redis, &[(6, "no", "body 6")]);
    browser.wait_for_text(".row .id", "#6").await;
    assert_eq!(browser.text(".detail-top h2").await.trim(), "Message #5");
    // All that the list shows is dropped, and nothing that came meanwhile.
    browser.js("document.querySelector('.bulk input').click()").await;
    browser.wait_for_text(".bulk", "All 6 selected").await;
    add_errors(&redis, &[(7, "no", "body 7")]);
    browser.wait_for_text("#nav-errors", "7").await;
    browser.click(".bulk button", "Drop").await;
    browser.click("#ask button", "Drop 6 errors").await;
    browser.wait_for_text(".detail-top h2", "#7").await;
    assert_eq!(server.json("/api/rings/orders")["errorsKept"], 1);
    browser.quit().await;
}

#[tokio::test]
async fn many_errors_are_dropped_with_progress_and_the_work_can_be_stopped() {
    let Some(browser) = Browser::start("many errors").await else { return };
    let redis = RedisServer::start();
    add_many_errors(&redis, 3000);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    browser.open(&format!("{}#/errors", server.url())).await;
    let watch = "window.seen = []; new MutationObserver(() => { const p = document.querySelector('.bulk progress'); \
                 if (p) window.seen.push(p.value); }).observe(document.body, { subtree: true, childList: true })";
    browser.js(watch).await;
    let listen = "window.answers = []; const real = window.fetch; window.fetch = async (...request) => { \
                  const response = await real(...request); if (String(request[0]).endsWith('/errors/drop')) \
                  window.answers.push((await response.clone().json()).changed); return response; }";
    browser.js(listen).await;
    let drop_all = async |stop: bool, count: u64| {
        browser.until("all can be selected", "return document.querySelector('.bulk input')").await;
        browser.js("if (!document.querySelector('.bulk input').checked) document.querySelector('.bulk input').click()").await;
        browser.click(".bulk button", "Drop").await;
        browser.wait_for_text("#ask h2", "Drop").await;
        assert_eq!(
            browser.js("return document.querySelector('#ask [type=submit]').disabled").await,
            json!(true)
        );
        if stop {
            // As soon as there is a button to stop, it is pressed.
            browser.js("new MutationObserver((_, o) => { const b = [...document.querySelectorAll('.bulk button')].find(x => x.innerText === 'Stop'); if (b && document.querySelector('.bulk progress').value > 0) { b.click(); o.disconnect(); } }).observe(document.querySelector('.bulk'), { subtree: true, childList: true })").await;
        }
        browser.js("document.querySelector('#ask input').focus()").await;
        browser.press(&count.to_string()).await;
        browser.click("#ask button", &format!("Drop {} errors", grouped(count))).await;
    };
    drop_all(true, 3000).await;
    browser
        .until("it has stopped", "return document.getElementById('say').textContent.includes('then stopped')")
        .await;
    let left = server.json("/api/rings/orders")["errorsKept"].as_u64().unwrap();
    assert!((1..3000).contains(&left), "{left} are left");
    browser.wait_for_text(".page-head p", &format!("{} kept", grouped(left))).await;
    browser.wait_for_text(".bulk", &format!("Select all {}", grouped(left))).await;
    drop_all(false, left).await;
    browser.wait_for_text("h1", "No errors are kept").await;
    let dropped: u64 = changes(&server).iter().map(|change| change[1].as_u64().unwrap()).sum();
    assert_eq!(dropped, 3000);
    let steps = "return window.seen.filter((value, i, all) => value > 0 && value !== all[i - 1]).length";
    let steps = browser.js(steps).await.as_u64().unwrap();
    assert!(steps > 3, "progress was shown {steps} times");
    let chunks = browser.js("return window.answers.filter(changed => changed > 0).length").await;
    assert_eq!(Some(steps), chunks.as_u64(), "each chunk is shown as soon as it is done");
    browser.quit().await;
}

fn grouped(count: u64) -> String {
    if count < 1000 { count.to_string() } else { format!("{},{:03}", count / 1000, count % 1000) }
}

#[tokio::test]
async fn all_errors_are_downloaded_as_a_file() {
    let Some(browser) = Browser::start("downloads").await else { return };
    let redis = RedisServer::start();
    add_many_errors(&redis, 700);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    let files = browser.directory.path().join("files");
    let allow = json!({"behavior": "allow", "downloadPath": files});
    browser.cdp("Browser.setDownloadBehavior", allow).await;
    browser.open(&format!("{}#/errors", server.url())).await;
    browser.click(".page-head a", "Download").await;
    let text =
        eventually(SOON, "the file", || std::fs::read_to_string(files.join("orders-errors.ndjson")).ok());
    let id_of = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_u64().unwrap();
    let mut ids: Vec<u64> = text.lines().map(id_of).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(1..=700), "each error once");
    browser.click(".detail button", "Download").await;
    let one =
        eventually(SOON, "one error", || std::fs::read_to_string(files.join("orders-error-700.json")).ok());
    assert!(one.contains("\"body\":\"body 700\""), "{one}");
    // What is downloaded is what the list shows.
    browser.js("location.hash = '#/errors?text=body%2069'").await;
    browser.wait_for_text(".bulk", "Select all 11").await;
    let found = "return fetch(document.querySelector('.page-head a').href).then(r => r.text())";
    assert_eq!(browser.js(found).await.as_str().unwrap().lines().count(), 11);
    browser.quit().await;
}

#[tokio::test]
async fn everything_works_with_the_keyboard_alone() {
    let Some(browser) = Browser::start("the keyboard").await else { return };
    let redis = RedisServer::start();
    add_many_errors(&redis, 5);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    let node = start(&redis, &["run", "--ring", "orders", "--error-rate", "0", "--interval", "50ms"], &[]);
    node.wait_for_line(SOON, |line| line.starts_with("joined as member"));
    let (enter, escape) = (Key::Enter.value().to_string(), Key::Escape.value().to_string());
    browser.open(&server.url()).await;
    browser.wait_for_text("#fresh", "live").await;
    browser
        .until("a chart", "return document.querySelector('.strip.tall .line.area')?.getAttribute('d')")
        .await;
    // The clock of the charts is a slider. Its text reads the figures of the second that the cursor is at.
    browser.tab_to("e.getAttribute('role') === 'slider'").await;
    browser.press(&Key::Left.value().to_string()).await;
    browser.wait_for_text(".readout", "ago").await;
    let read = "return document.activeElement.getAttribute('aria-valuetext')";
    browser.until("the figures", &format!("{read}.includes('generated ')", read = read)).await;
    browser.press(&escape).await;
    browser.until("no cursor", "return document.querySelector('.readout').innerText === ''").await;
    // A member opens and closes, and the focus comes back.
    browser.tab_to("e.className === 'who'").await;
    let member = browser.focused().await;
    browser.press(&enter).await;
    browser.wait_for_text("#drawer h2", "Node ").await;
    assert_eq!(browser.focused().await, "Close");
    browser.press(&escape).await;
    browser.until("the drawer has closed", "return !document.querySelector('dialog[open]')").await;
    assert_eq!(browser.focused().await, member);
    browser.press("2").await;
    browser.wait_for_text(".detail-top h2", "#5").await;
    browser.press("j").await;
    browser.wait_for_text(".detail-top h2", "#4").await;
    browser.press("x").await;
    browser.wait_for_text(".bulk", "1 selected").await;
    browser.press("d").await;
    browser.wait_for_text("#ask h2", "Drop 1 error?").await;
    browser.tab_to("e.innerText === 'Drop 1 error'").await;
    browser.press(&enter).await;
    eventually(SOON, "the error is gone", || {
        (server.json("/api/rings/orders")["errorsKept"] == 4).then_some(())
    });
    browser.until("the dialog has closed", "return !document.querySelector('dialog[open]')").await;
    browser.press("/").await;
    browser.until("the search has the focus", "return document.activeElement.id === 'search'").await;
    browser.press("body 2").await;
    browser.wait_for_text(".detail-top h2", "#2").await;
    browser.press(&escape).await;
    // The body as text, as JSON and as bytes: one stop of the tab key, and arrows.
    browser.tab_to("e.getAttribute('role') === 'tab'").await;
    for name in ["JSON as received", "Hex", "Text"] {
        browser.press(&Key::Right.value().to_string()).await;
        browser.until(name, &format!("return document.activeElement.innerText === '{name}'")).await;
    }
    browser.press("3").await;
    browser.wait_for_text("h1", "Schedules").await;
    browser.until("a button", "return document.querySelector('[data-act=pause-producing]')").await;
    browser.tab_to("e.dataset.act === 'pause-producing'").await;
    browser.press(&enter).await;
    browser.wait_for_text(".pauses", "paused").await;
    assert!(server.json("/api/rings/orders")["producingPause"].is_object());
    browser
        .until(
            "the focus is where it was",
            "return document.activeElement.dataset.act === 'resume-producing'",
        )
        .await;
    browser.press("?").await;
    browser.wait_for_text("#ask h2", "Keys and shapes").await;
    browser.press(&escape).await;
    browser.until("the help has closed", "return !document.querySelector('dialog[open]')").await;
    browser.quit().await;
}

#[tokio::test]
async fn a_read_only_page_has_no_buttons_that_would_be_refused() {
    let Some(browser) = Browser::start("read-only").await else { return };
    let redis = RedisServer::start();
    add_many_errors(&redis, 5);
    let server = WebServer::start(&redis, &["--ring", "orders", "--read-only"]);
    browser.open(&format!("{}#/errors", server.url())).await;
    browser.wait_for_text(".detail-top h2", "#5").await;
    browser.wait_for_text("#readonly", "read-only").await;
    let buttons =
        "return [...document.querySelectorAll('main button, main input')].map(b => b.innerText || b.type)";
    let buttons = browser.js(buttons).await;
    assert!(!buttons.to_string().contains("Retry") && !buttons.to_string().contains("Drop"), "{buttons}");
    assert!(!buttons.to_string().contains("checkbox"), "{buttons}");
    browser.press("d").await;
    assert_eq!(browser.js("return document.querySelectorAll('dialog[open]').length").await, json!(0));
    let forced = "return fetch('api/rings/orders/errors/drop', { method: 'POST', headers: { 'content-type': \
                  'application/json' }, body: '{\"all\":true}' }).then(r => r.status)";
    assert_eq!(browser.js(forced).await, json!(403), "the server refuses, whatever the page shows");
    assert_eq!(server.json("/api/rings/orders")["errorsKept"], 5);
    browser.js("location.hash = '#/schedules'").await;
    browser.wait_for_text(".pauses", "Producing").await;
    assert_eq!(browser.js("return document.querySelectorAll('.pauses button').length").await, json!(0));
    browser.quit().await;
}
