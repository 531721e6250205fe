//! One function around the whole server. It decides which requests may pass, in this order:
//!
//! 1. The host must be one of ours. Otherwise a foreign page could reach this server under its own name.
//! 2. On a read-only server, only GET and HEAD pass, before anything looks at the path.
//! 3. A login, if there are any. Health checks need none.
//! 4. A change needs the right to change, and must come from our own page or carry a token.
//!
//! Every answer gets the headers that keep the page from loading or sending anything foreign.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::access::{Right, Visitor};
use crate::problem::Problem;
use crate::server::{Peer, Web};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

pub async fn guard(State(web): State<Arc<Web>>, request: Request, next: Next) -> Response {
    let mut response = match admit(&web, request).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal,
    };
    let headers = response.headers_mut();
    let mut add = |name, value| drop(headers.insert(name, HeaderValue::from_static(value)));
    add(header::CONTENT_SECURITY_POLICY, POLICY);
    add(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    add(header::REFERRER_POLICY, "no-referrer");
    add(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Returns the request with its visitor, or why it may not pass.
async fn admit(web: &Web, mut request: Request) -> Result<Request, Response> {
    let peer = request.extensions().get::<Peer>().copied();
    check_host(web, request.headers(), request.uri(), peer).map_err(Problem::into_response)?;
    let is_change = !matches!(*request.method(), Method::GET | Method::HEAD);
    if is_change && web.read_only {
        return Err(Problem::forbidden("this server is read-only").into_response());
    }
    let is_health = matches!(request.uri().path(), "/livez" | "/readyz");
    if is_health && !is_change {
        return Ok(request);
    }
    let Some(visitor) = web.logins.visitor(request.headers()).await else {
        return Err(login_wanted());
    };
    if is_change {
        check_change(&visitor, request.headers()).map_err(Problem::into_response)?;
    }
    request.extensions_mut().insert(visitor);
    Ok(request)
}

fn login_wanted() -> Response {
    let problem = Problem::new(StatusCode::UNAUTHORIZED, "this server needs a login");
    let challenge = HeaderValue::from_static("Basic realm=\"estafeta\", charset=\"UTF-8\"");
    ([(header::WWW_AUTHENTICATE, challenge)], problem).into_response()
}

fn check_host(web: &Web, headers: &HeaderMap, uri: &Uri, peer: Option<Peer>) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Problem::bad_request("expected exactly one Host header"));
    };
    let host = host.to_str().unwrap_or_default();
    let targets = uri.authority().map(|authority| authority.as_str());
    for name in targets.into_iter().chain([host]) {
        let name = without_port(name);
        let is_here = |address: &IpAddr| peer.is_some_and(|peer| peer.local == *address);
        let is_known = web.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
        let literal = name.trim_matches(['[', ']']).parse::<IpAddr>();
        if !is_known && !literal.is_ok_and(|address| is_here(&address)) {
            let shown: String = name.chars().take(100).collect();
            let remedy =
                format!("host '{shown}' is not allowed here: start the server with --allow-host NAME");
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, remedy));
        }
    }
    Ok(())
}

/// A host without its port: `localhost:7070`, `[::1]:7070`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn check_change(visitor: &Visitor, headers: &HeaderMap) -> Result<(), Problem> {
    if visitor.right != Right::Change {
        return Err(Problem::forbidden("this login may only look"));
    }
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    let site = text(header::HeaderName::from_static("sec-fetch-site"));
    let is_ours = match (site, text(header::ORIGIN)) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => is_own_origin(origin, text(header::HOST).unwrap_or_default()),
        (None, None) => visitor.has_token,
    };
    if !is_ours {
        return Err(Problem::forbidden(
            "a change must come from this server's own page, or carry a bearer token",
        ));
    }
    Ok(())
}

/// Whether an origin is this server. A proxy may speak TLS for it, so the scheme may be either.
fn is_own_origin(origin: &str, host: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    !host.is_empty() && rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_compared_without_its_port() {
        let cases =
            [("localhost", "localhost"), ("a.b:80", "a.b"), ("[::1]:7070", "[::1]"), ("[::1]", "[::1]")];
        for (host, name) in cases {
            assert_eq!(without_port(host), name);
        }
    }

    #[test]
    fn an_origin_is_ours_only_if_all_of_it_is() {
        assert!(is_own_origin("http://a:1", "a:1") && is_own_origin("https://A", "a"));
        for (origin, host) in
            [("null", "a"), ("http://a:2", "a:1"), ("http://a.evil", "a"), ("ftp://a", "a"), ("http://", "")]
        {
            assert!(!is_own_origin(origin, host), "{origin}");
        }
    }
}
