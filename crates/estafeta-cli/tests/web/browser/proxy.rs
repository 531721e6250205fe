//! The page behind a proxy that serves it under a sub-path, as companies do with their tools.

use std::sync::{Arc, Mutex};

use estafeta_testbed::{RedisServer, eventually};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::driver::Browser;
use crate::support::{SOON, WebServer, add_errors, add_many_errors, changes};

/// A proxy that serves one server under a sub-path, and nothing else.
struct SubPathProxy {
    url: String,
    /// The paths outside of the sub-path that a client asked for.
    strays: Arc<Mutex<Vec<String>>>,
}

impl SubPathProxy {
    async fn start(server: &str, sub_path: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}{sub_path}/", listener.local_addr().unwrap());
        let (strays, server) = (Arc::new(Mutex::new(Vec::new())), server.to_owned());
        let seen = Arc::clone(&strays);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, seen) = (server.clone(), Arc::clone(&seen));
                tokio::spawn(async move { pass_on(client, &server, sub_path, &seen).await });
            }
        });
        Self { url, strays }
    }
}

/// Passes on one request without the sub-path. The connection ends with its answer.
async fn pass_on(
    mut client: TcpStream,
    server: &str,
    sub_path: &str,
    strays: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let (method, rest) = lines.next()?.split_once(' ')?;
    let Some(rest) = rest.strip_prefix(sub_path).filter(|rest| rest.starts_with('/')) else {
        strays.lock().unwrap().push(rest.to_owned());
        return client.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await.ok();
    };
    let headers = lines.filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let headers: String = headers.map(|line| format!("{line}\r\n")).collect();
    let mut upstream = TcpStream::connect(server).await.ok()?;
    upstream
        .write_all(format!("{method} {rest}\r\n{headers}Connection: close\r\n\r\n").as_bytes())
        .await
        .ok()?;
    upstream.write_all(&bytes[end + 4..]).await.ok()?;
    copy_bidirectional(&mut client, &mut upstream).await.ok().map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_works_under_the_sub_path_of_a_proxy() {
    let Some(browser) = Browser::start("the sub-path of a proxy").await else { return };
    let redis = RedisServer::start();
    add_many_errors(&redis, 3);
    let server = WebServer::start(&redis, &["--ring", "orders"]);
    let proxy = SubPathProxy::start(&server.address, "/ops/estafeta").await;
    browser.open(&proxy.url).await;
    browser.wait_for_text("#fresh", "live").await;
    browser.wait_for_text(".ledger", "errors kept 3").await;
    // The stream brings what happens now, and a change passes the proxy.
    add_errors(&redis, &[(4, "no", "body 4")]);
    browser.wait_for_text("#nav-errors", "4").await;
    browser.js("document.querySelector('[data-view=errors]').click()").await;
    browser.wait_for_text(".detail-top h2", "#4").await;
    browser.click(".detail button", "Drop").await;
    browser.click("#ask button", "Drop 1 error").await;
    eventually(SOON, "the change", || (changes(&server) == [json!(["dropped", 1, "web"])]).then_some(()));
    browser.wait_for_text(".detail-top h2", "#3").await;
    browser.click("nav a", "Schedules").await;
    browser.wait_for_text(".pauses", "Producing").await;
    // Every address on the page leads into the sub-path, and to something that exists.
    let links = "const links = [...document.querySelectorAll('.foot a')].map(a => a.href); \
                 return Promise.all(links.map(async link => [link, (await fetch(link)).status]))";
    let links = browser.js(links).await;
    let wanted = ["api/openapi.json", "metrics"].map(|path| json!([format!("{}{path}", proxy.url), 200]));
    assert_eq!(links, json!(wanted));
    assert_eq!(*proxy.strays.lock().unwrap(), Vec::<String>::new());
    assert!(browser.was_not_reloaded().await);
    browser.quit().await;
}
