//! Errors in the page: hostile text, retry, drop, many at once, downloads, keys, read-only.

use estafeta_testbed::{RedisServer, eventually};
use serde_json::json;
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
    redis::cmd("XADD")
        .arg("{orders}:events")
        .arg("*")
        .arg("kind")
        .arg("joined")
        .arg("member")
        .arg(99)
        .arg("role")
        .arg("node")
        .arg("host")
        .arg(EVIL)
        .arg("pid")
        .arg(7)
        .exec(&mut connection)
        .unwrap();
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    browser.open(&server.url()).await;
    is_only_text(&browser, ".members .c-host bdi").await;
    is_only_text(&browser, "[data-kpi=generator] .note").await;
    browser.wait_for_text(".events li", "U+001B").await;
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
    browser.wait_for_text(".body-view", "<script>window.hacked=1").await;
    assert_eq!(browser.js("return window.hacked ?? null").await, json!(null));
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
async fn many_errors_are_dropped_with_progress_and_the_work_can_be_stopped() {
    let Some(browser) = Browser::start("many errors").await else { return };
    let redis = RedisServer::start();
    add_many_errors(&redis, 5000);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    browser.open(&format!("{}#/errors", server.url())).await;
    let watch = "window.seen = []; new MutationObserver(() => { const p = document.querySelector('.bulk progress'); \
                 if (p) window.seen.push(p.value); }).observe(document.body, { subtree: true, childList: true })";
    browser.js(watch).await;
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
    drop_all(true, 5000).await;
    browser
        .until("it has stopped", "return document.getElementById('say').textContent.includes('then stopped')")
        .await;
    let left = server.json("/api/rings/orders")["errorsKept"].as_u64().unwrap();
    assert!((1..5000).contains(&left), "{left} are left");
    browser.wait_for_text(".page-head p", &format!("{} kept", grouped(left))).await;
    browser.wait_for_text(".bulk", &format!("Select all {}", grouped(left))).await;
    drop_all(false, left).await;
    browser.wait_for_text("h1", "No errors are kept").await;
    let steps = browser.js("return new Set(window.seen).size").await.as_u64().unwrap();
    assert!(steps > 3, "progress was shown {steps} times");
    let dropped: u64 = changes(&server).iter().map(|change| change[1].as_u64().unwrap()).sum();
    assert_eq!(dropped, 5000);
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
    assert_eq!(text.lines().count(), 700);
    browser.click(".detail button", "Download").await;
    let one =
        eventually(SOON, "one error", || std::fs::read_to_string(files.join("orders-error-700.json")).ok());
    assert!(one.contains("\"body\":\"body 700\""), "{one}");
    browser.quit().await;
}

#[tokio::test]
async fn everything_works_with_the_keyboard_alone() {
    let Some(browser) = Browser::start("the keyboard").await else { return };
    let redis = RedisServer::start();
    add_many_errors(&redis, 5);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    browser.open(&server.url()).await;
    browser.wait_for_text("#fresh", "live").await;
    browser.press("2").await;
    browser.wait_for_text(".detail-top h2", "#5").await;
    browser.press("j").await;
    browser.wait_for_text(".detail-top h2", "#4").await;
    browser.press("x").await;
    browser.wait_for_text(".bulk", "1 selected").await;
    browser.press("d").await;
    browser.wait_for_text("#ask h2", "Drop 1 error?").await;
    let name = "return document.activeElement.innerText";
    while browser.js(name).await != json!("Drop 1 error") {
        browser.press(&Key::Tab.value().to_string()).await;
    }
    browser.press(&Key::Enter.value().to_string()).await;
    eventually(SOON, "the error is gone", || {
        (server.json("/api/rings/orders")["errorsKept"] == 4).then_some(())
    });
    browser.until("the dialog has closed", "return !document.querySelector('dialog[open]')").await;
    browser.press("/").await;
    browser.until("the search has the focus", "return document.activeElement.id === 'search'").await;
    browser.press("body 2").await;
    browser.wait_for_text(".detail-top h2", "#2").await;
    browser.press(&Key::Escape.value().to_string()).await;
    browser.press("3").await;
    browser.wait_for_text("h1", "Schedules").await;
    browser.until("a button", "return document.querySelector('[data-act=pause-producing]')").await;
    for _ in 0..20 {
        if browser.js("return document.activeElement.dataset.act ?? ''").await == json!("pause-producing") {
            break;
        }
        browser.press(&Key::Tab.value().to_string()).await;
    }
    browser.press(&Key::Enter.value().to_string()).await;
    browser.wait_for_text(".pauses", "paused").await;
    assert!(server.json("/api/rings/orders")["producingPause"].is_object());
    browser.press("?").await;
    browser.wait_for_text("#ask h2", "Keys and shapes").await;
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
    browser.quit().await;
}
