//! One Chromium per test.

use std::path::Path;
use std::time::{Duration, Instant};

use estafeta_testbed::{NO_ENV, Process};
use serde_json::{Value, json};
use thirtyfour::prelude::*;
use thirtyfour::{ChromeCapabilities, Key};

use crate::support::{SOON, find_tool, skip};

/// The browser finds no other machine, so every test shows that the page needs none.
const FLAGS: [&str; 11] = [
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1440,1000",
];

/// Collects what goes wrong in a page: exceptions, refused scripts and styles, messages for its developers.
const COMPLAINTS: &str = "
    window.complaints = [];
    const complain = text => window.complaints.push(String(text));
    addEventListener('error', e => complain(e.message ?? `${e.target.tagName} failed`), true);
    addEventListener('unhandledrejection', e => complain(e.reason?.stack ?? e.reason));
    addEventListener('securitypolicyviolation', e => complain(`${e.violatedDirective}: ${e.blockedURI}`));
    console.error = (...words) => complain(words.join(' '));
";

pub struct Browser {
    pub driver: WebDriver,
    /// Its profile and its downloads.
    pub directory: tempfile::TempDir,
    _server: Process,
}

impl Browser {
    /// Starts a browser. None if there is no Chromium here: one line then reports it.
    pub async fn start(test: &str) -> Option<Self> {
        let programs = (find_tool(&["chromedriver"], ""), find_tool(&["chromium", "chromium-browser"], ""));
        let (Some(server), Some(chromium)) = programs else {
            skip(test, "there is no chromium with its chromedriver here");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let server = Process::spawn(&server, ["--port=0"], NO_ENV);
        let line = server.wait_for_line(SOON, |line| line.contains("started successfully on port"));
        let port: u16 = line.trim_end_matches('.').rsplit(' ').next().unwrap().parse().unwrap();
        let mut capabilities = ChromeCapabilities::new();
        capabilities.set_binary(chromium.to_str().unwrap()).unwrap();
        for flag in FLAGS {
            capabilities.add_arg(flag).unwrap();
        }
        capabilities
            .add_arg(&format!("--user-data-dir={}", directory.path().join("profile").display()))
            .unwrap();
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), capabilities).await.unwrap();
        let browser = Self { driver, directory, _server: server };
        browser.cdp("Page.addScriptToEvaluateOnNewDocument", json!({"source": COMPLAINTS})).await;
        Some(browser)
    }

    pub async fn open(&self, url: &str) {
        self.driver.goto(url).await.unwrap();
        // A page that was loaded again has lost this.
        self.js("window.neverReloaded = true").await;
    }

    pub async fn js(&self, script: &str) -> Value {
        self.driver.execute(script, vec![]).await.unwrap().json().clone()
    }

    pub async fn cdp(&self, command: &str, params: Value) -> Value {
        self.driver.cdp().send_raw(command, params).await.unwrap()
    }

    pub async fn size(&self, width: u32, height: u32) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700});
        self.cdp("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub async fn colours(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.cdp("Emulation.setEmulatedMedia", features).await;
    }

    /// Waits until a script returns something true, and returns it.
    pub async fn until(&self, what: &str, script: &str) -> Value {
        let end = Instant::now() + SOON;
        loop {
            let value = self.js(script).await;
            if !matches!(value, Value::Null | Value::Bool(false)) && value != json!("") {
                return value;
            }
            if Instant::now() > end {
                let seen = self.js("return document.body.innerText.slice(0, 1500)").await;
                panic!("{what} did not come. The page shows: {seen}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({})?.innerText ?? ''", json!(selector));
        self.js(&script).await.as_str().unwrap().to_owned()
    }

    pub async fn wait_for_text(&self, selector: &str, wanted: &str) {
        let (selector, wanted) = (json!(selector), json!(wanted));
        let script = format!(
            "return [...document.querySelectorAll({selector})].some(e => e.innerText.includes({wanted}))"
        );
        self.until(&format!("{wanted} in {selector}"), &script).await;
    }

    /// The same for text in a chart.
    pub async fn wait_for_svg(&self, selector: &str, wanted: &str) {
        let (selector, wanted) = (json!(selector), json!(wanted));
        let script = format!(
            "return [...document.querySelectorAll({selector})].some(e => e.textContent.includes({wanted}))"
        );
        self.until(&format!("{wanted} in {selector}"), &script).await;
    }

    /// Clicks the first element of this kind with exactly this text or name.
    pub async fn click(&self, selector: &str, name: &str) {
        let find = format!(
            "return [...document.querySelectorAll({})].find(e => (e.getAttribute('aria-label') ?? e.innerText).trim() \
             === {} && !e.disabled && e.offsetParent !== null)",
            json!(selector),
            json!(name)
        );
        self.until(&format!("{selector} named {name}"), &format!("{find} !== undefined", find = find)).await;
        loop {
            let element = self.driver.execute(find.clone(), vec![]).await.unwrap().element().unwrap();
            match element.click().await {
                // The page has drawn this part anew since it was found.
                Err(error) if format!("{error:?}").contains("StaleElementReference") => {}
                clicked => return clicked.unwrap(),
            }
        }
    }

    pub async fn press(&self, keys: &str) {
        self.driver.action_chain().send_keys(keys).perform().await.unwrap();
    }

    pub async fn was_not_reloaded(&self) -> bool {
        self.js("return window.neverReloaded === true").await == json!(true)
    }

    /// Writes what the page shows into the directory of the build.
    pub async fn picture(&self, name: &str) {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("web");
        std::fs::create_dir_all(&target).unwrap();
        self.driver.screenshot(&target.join(format!("{name}.png"))).await.unwrap();
    }

    /// Presses the tab key until the element that has the focus fits a condition on `e`.
    pub async fn tab_to(&self, condition: &str) {
        let script = format!("const e = document.activeElement; return !!({condition})");
        for _ in 0..100 {
            if self.js(&script).await == json!(true) {
                return;
            }
            self.press(&Key::Tab.value().to_string()).await;
        }
        panic!("the tab key does not reach an element with {condition}");
    }

    pub async fn focused(&self) -> String {
        let script = "const e = document.activeElement; return e.getAttribute('aria-label') ?? e.innerText";
        self.js(script).await.as_str().unwrap_or_default().to_owned()
    }

    /// Ends the browser. A test fails if its page complained, or asked another server for anything.
    pub async fn quit(self) {
        assert_eq!(self.js("return window.complaints ?? null").await, json!([]));
        let foreign = "return performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin + '/'))";
        assert_eq!(self.js(foreign).await, json!([]));
        self.driver.quit().await.unwrap();
    }
}
