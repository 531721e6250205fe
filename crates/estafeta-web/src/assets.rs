//! The page itself. It is part of the program, so there is nothing to install beside it.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The path, the type and the content of each file.
macro_rules! assets {
    ($($path:literal $kind:ident $file:literal),+ $(,)?) => {
        const ASSETS: &[(&str, &str, &str)] = &[$(($path, $kind, include_str!(concat!("../assets/", $file)))),+];
    };
}

assets! {
    "/" HTML "index.html",
    "/style.css" CSS "style.css",
    "/app.js" SCRIPT "app.js",
    "/charts.js" SCRIPT "charts.js",
    "/dom.js" SCRIPT "dom.js",
    "/errors.js" SCRIPT "errors.js",
    "/live.js" SCRIPT "live.js",
    "/overview.js" SCRIPT "overview.js",
    "/body.js" SCRIPT "body.js",
    "/schedules.js" SCRIPT "schedules.js",
}

pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.iter().fold(Router::new(), |router, (path, kind, content)| {
        router.route(path, get(async move || file(kind, content)))
    })
}

fn file(kind: &'static str, content: &'static str) -> Response {
    // A new version of the program must not meet an old page.
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")];
    (headers.map(|(name, value)| (name, HeaderValue::from_static(value))), content).into_response()
}
