//! The errors of a ring: a page of them, one of them, all of them as a file.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use estafeta::{DeadLetter, Ring};
use estafeta_lab::by_reason::is_of_group;
use estafeta_lab::message_id::MessageId;
use estafeta_lab::report::{DeadLetterObject, json_line};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::overview::checked_count;
use super::{NoParams, Params, Segments, answer};
use crate::problem::Problem;
use crate::scan::{Cursor, PlacedError, Scan};
use crate::server::Web;
use crate::shown_id::{GivenId, ShownId};

/// How long a search may take. The answer then has a cursor with which the next one goes on.
const SEARCH_TIME: Duration = Duration::from_millis(300);
/// How long the search for one error may take.
const FIND_TIME: Duration = Duration::from_secs(2);
const DEFAULT_COUNT: u64 = 100;
const MOST_COUNT: u64 = 500;
/// How many characters of a body and of a reason a list shows.
const PREVIEW: usize = 240;
const REASON: usize = 1000;
/// The longest text to search for.
const LONGEST_TEXT: usize = 200;

/// Which errors to choose.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ErrorFilter {
    /// Only errors with this text in their reason, their body or their id. Upper and lower case are the same. At most
    /// 200 characters.
    #[serde(default)]
    #[param(max_length = 200)]
    pub text: String,
    /// Only errors of the group that shows this reason.
    #[serde(default)]
    pub reason: String,
}

impl ErrorFilter {
    pub fn check(mut self) -> Result<Self, Problem> {
        if self.text.chars().count() > LONGEST_TEXT {
            return Err(Problem::bad_request(format!("text: expected at most {LONGEST_TEXT} characters")));
        }
        self.text = self.text.to_lowercase();
        Ok(self)
    }

    pub fn has(&self, letter: &DeadLetter) -> bool {
        (self.reason.is_empty() || is_of_group(letter, &self.reason))
            && (self.text.is_empty()
                || letter.reason.to_lowercase().contains(&self.text)
                || letter.message.text().to_lowercase().contains(&self.text)
                || MessageId::from(&letter.message).to_string().contains(&self.text))
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ErrorParams {
    /// The cursor with which to go on: `next` of an answer.
    #[serde(default)]
    #[param(pattern = r"^((\d{1,4}:)?\d{1,15}-\d{1,15}(,(\d{1,4}:)?\d{1,15}-\d{1,15})*)?$")]
    after: String,
    /// Only errors with this text in their reason, their body or their id.
    #[serde(default)]
    #[param(max_length = 200)]
    text: String,
    /// Only errors of the group that shows this reason.
    #[serde(default)]
    reason: String,
    /// How many errors, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    count: Option<u64>,
}

/// A page of errors, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorPage {
    /// How many errors are kept, whatever the filter.
    kept: u64,
    /// How many errors were compared with the filter.
    scanned: u64,
    /// The cursor with which to go on. Null at the end of the list. A search that takes too long stops earlier.
    next: Option<String>,
    errors: Vec<ErrorItem>,
}

/// An error in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorItem {
    id: ShownId,
    /// Where it is, for a faster search.
    cursor: String,
    reason: String,
    /// How many handlers have failed at it.
    failures: u32,
    /// How many handlers have died with it.
    deaths: u32,
    delivery: u32,
    member: ShownId,
    failed_ms: u64,
    /// The size of its body in bytes.
    size: u64,
    /// The beginning of its body. Bytes that are no text are replaced.
    preview: String,
}

impl ErrorItem {
    fn new(error: &PlacedError<'_>) -> Self {
        let letter = &error.letter;
        let partition = letter.message.ring().partition();
        let member = partition.map_or(letter.member, |index| letter.member.in_partition(index));
        let body = letter.message.body();
        let beginning = &body[..body.len().min(PREVIEW * 4)];
        Self {
            id: error.id().into(),
            cursor: error.cursor().to_string(),
            reason: letter.reason.chars().take(REASON).collect(),
            failures: letter.message.failures,
            deaths: letter.message.deaths,
            delivery: letter.message.delivery,
            member: member.into(),
            failed_ms: letter.failed_ms,
            size: body.len() as u64,
            preview: String::from_utf8_lossy(beginning).chars().take(PREVIEW).collect(),
        }
    }
}

/// A page of the errors of a ring, newest first.
#[utoipa::path(get, path = "/api/rings/{ring}/errors", tag = "errors", params(("ring" = String, Path, description = "name of the ring", example = "orders"), ErrorParams),
    responses((status = 200, body = ErrorPage)))]
pub async fn list(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    Params(params): Params<ErrorParams>,
) -> Result<Response, Problem> {
    let count = checked_count(params.count, DEFAULT_COUNT, MOST_COUNT)? as usize;
    let filter = ErrorFilter { text: params.text, reason: params.reason }.check()?;
    let after: Cursor = params.after.parse()?;
    let rings = web.registry.feed(&ring).await?.rings().await?;
    let begun = Instant::now();
    let kept = rings.error_count().await?;
    let mut scan = Scan::begin(&rings.all, &after).await?;
    let (mut errors, mut scanned, mut cursor) = (Vec::new(), 0, scan.cursor());
    let mut is_over = scan.is_over();
    'pages: while !is_over {
        for error in scan.next().await? {
            if errors.len() == count {
                break 'pages;
            }
            scanned += 1;
            cursor.pass(&error);
            if filter.has(&error.letter) {
                errors.push(ErrorItem::new(&error));
            }
        }
        is_over = scan.is_over();
        if begun.elapsed() > SEARCH_TIME {
            break;
        }
    }
    let next = (!is_over).then(|| cursor.to_string());
    Ok(answer(&ErrorPage { kept, scanned, next, errors }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct OneParams {
    /// `cursor` of the error in a list, so that it is found at once.
    #[serde(default)]
    #[param(pattern = r"^((\d{1,4}:)?\d{1,15}-\d{1,15}(,(\d{1,4}:)?\d{1,15}-\d{1,15})*)?$")]
    near: String,
}

/// One error with its whole body.
#[utoipa::path(get, path = "/api/rings/{ring}/errors/{id}", tag = "errors",
    params(("ring" = String, Path, description = "name of the ring", example = "orders"), ("id" = GivenId, Path, description = "id of its message", example = 17), OneParams),
    responses((status = 200, description = "see docs/json.md", content_type = "application/json", body = Object)))]
pub async fn one(
    State(web): State<Arc<Web>>,
    Segments((ring, id)): Segments<(String, String)>,
    Params(params): Params<OneParams>,
) -> Result<Response, Problem> {
    let wrong = || Problem::expected("id", "the id of a message", &id);
    let id = GivenId::parse(&id).and_then(|id| id.message()).ok_or_else(wrong)?;
    let near: Cursor = params.near.parse()?;
    let rings = web.registry.feed(&ring).await?.rings().await?;
    let missing = || Problem::not_found(format!("no error of message {id} is kept"));
    let ring = rings.ring_of(id).ok_or_else(missing)?;
    let letter = find(ring, id.id, &near).await?.ok_or_else(missing)?;
    Ok(answer(&whole(&letter)))
}

/// An error as `errors list --json` prints it, with its headers.
fn whole(letter: &DeadLetter) -> Value {
    let mut object = serde_json::to_value(DeadLetterObject::from(letter)).unwrap_or_default();
    let headers: Vec<_> = letter.message.headers().iter().collect();
    if let Value::Object(fields) = &mut object {
        fields.insert("headers".to_owned(), json!(headers));
        fields.insert("size".to_owned(), json!(letter.message.body().len()));
    }
    object
}

async fn find(ring: &Ring, id: u64, near: &Cursor) -> Result<Option<DeadLetter>, Problem> {
    if let Some(letter) = near.look_near(ring, id).await? {
        return Ok(Some(letter));
    }
    let (begun, mut scan) = (Instant::now(), Scan::begin([ring], &Cursor::default()).await?);
    while !scan.is_over() {
        let found = scan.next().await?.into_iter().find(|error| error.letter.message.id == id);
        if let Some(error) = found {
            return Ok(Some(error.letter));
        }
        if begun.elapsed() > FIND_TIME {
            let detail = "the list is too long to find this error in time: use `near` with its cursor";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
        }
    }
    Ok(None)
}

/// The reasons of the errors, the most frequent first.
#[utoipa::path(get, path = "/api/rings/{ring}/errors/reasons", tag = "errors", params(("ring" = String, Path, description = "name of the ring", example = "orders")),
    responses((status = 200, description = "kept, counted, reasons", content_type = "application/json", body = Object)))]
pub async fn reasons(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    _: Params<NoParams>,
) -> Result<Response, Problem> {
    let feed = web.registry.feed(&ring).await?;
    Ok(answer(&*feed.reasons.get(&*feed.rings().await?).await?))
}

/// All errors, or those that fit, as one object per line. The newest comes first.
#[utoipa::path(get, path = "/api/rings/{ring}/errors.ndjson", tag = "errors", params(("ring" = String, Path, description = "name of the ring", example = "orders"), ErrorFilter),
    responses((status = 200, description = "one object per line, as `errors list --json` prints them", content_type = "application/x-ndjson", body = String)))]
pub async fn download(
    State(web): State<Arc<Web>>,
    Segments(ring): Segments<String>,
    Params(filter): Params<ErrorFilter>,
) -> Result<Response, Problem> {
    let filter = filter.check()?;
    let rings = web.registry.feed(&ring).await?.rings().await?;
    // Redis must answer once before the download begins.
    rings.error_count().await?;
    let name = rings.whole.name().as_str().replace(['/', ':'], "-");
    let file = format!("attachment; filename=\"{name}-errors.ndjson\"");
    let stop = web.stop.clone();
    let chunks = stream::try_unfold((Cursor::default(), false), move |(mut cursor, is_over)| {
        let (rings, filter, stop) = (Arc::clone(&rings), filter.clone(), stop.clone());
        async move {
            if is_over || stop.is_cancelled() {
                return Ok(None);
            }
            let mut scan = Scan::begin(&rings.all, &cursor).await?;
            cursor = scan.cursor();
            let mut lines = String::new();
            for error in scan.next().await? {
                cursor.pass(&error);
                if filter.has(&error.letter) {
                    lines.push_str(&json_line(&DeadLetterObject::from(&error.letter)));
                    lines.push('\n');
                }
            }
            Ok::<_, estafeta::Error>(Some((Bytes::from(lines), (cursor, scan.is_over()))))
        }
    });
    let kind = HeaderValue::from_static("application/x-ndjson");
    let file = HeaderValue::from_str(&file).unwrap_or_else(|_| HeaderValue::from_static("attachment"));
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, file)];
    Ok((headers, Body::from_stream(chunks)).into_response())
}
