//! The description of the API, as OpenAPI 3.1.

use axum::Json;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi};

use crate::api::{changes, errors, overview, plan};
use crate::problem::Problem;
use crate::{live, metrics};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "estafeta web",
        description = "Rings of estafeta: their state, their history and their errors."
    ),
    paths(
        overview::meta,
        overview::ring,
        overview::history,
        overview::events,
        overview::backlog,
        overview::livez,
        overview::readyz,
        errors::list,
        errors::one,
        errors::reasons,
        errors::download,
        changes::retry,
        changes::drop_errors,
        changes::pause,
        changes::resume,
        plan::schedule,
        plan::checkpoint,
        live::live,
        metrics::metrics,
    ),
    components(schemas(Problem)),
    modifiers(&Logins, &SharedAnswers)
)]
struct Description;

/// How a program shows who it is. A server without logins wants none.
struct Logins;

impl Modify for Logins {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        let components = description.components.get_or_insert_default();
        let none = || SecurityRequirement::default();
        let mut accepted = vec![none()];
        for (name, scheme) in [("basic", HttpAuthScheme::Basic), ("bearer", HttpAuthScheme::Bearer)] {
            components.add_security_scheme(name, SecurityScheme::Http(Http::new(scheme)));
            accepted.push(SecurityRequirement::new(name, [""; 0]));
        }
        description.security = Some(accepted);
        for (path, item) in &mut description.paths.paths {
            if let Some(operation) = item.get.as_mut().filter(|_| is_health(path)) {
                operation.security = Some(vec![none()]);
            }
        }
    }
}

fn is_health(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz")
}

/// The problems that many operations can answer with. They are listed here, once.
struct SharedAnswers;

impl SharedAnswers {
    fn add(path: &str, is_change: bool, operation: &mut Operation) {
        let is_of_ring = path.contains("{ring}");
        let answers = [
            ("400", true, "the request or one of its parameters is wrong"),
            ("401", !is_health(path), "this server needs a login"),
            ("403", is_change, "the visitor may not change anything, or another page sent this"),
            ("404", is_of_ring, "there is no such ring, or no such error"),
            ("408", is_change, "the body did not arrive in time"),
            (
                "409",
                is_of_ring,
                "this program does not know the layout of the ring, or another one changed its keys",
            ),
            ("413", is_change, "the body is too large"),
            ("415", is_change, "the body is not JSON"),
            ("421", true, "the host is not allowed here"),
            ("503", true, "Redis is away, or there are too many connections"),
        ];
        for (status, _, why) in answers.into_iter().filter(|(_, has_it, _)| *has_it) {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
            let answer = ResponseBuilder::new().description(why).content("application/problem+json", content);
            operation.responses.responses.entry(status.to_owned()).or_insert_with(|| answer.into());
        }
    }
}

impl Modify for SharedAnswers {
    fn modify(&self, description: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut description.paths.paths {
            for (is_change, operation) in [(false, &mut item.get), (true, &mut item.post)] {
                if let Some(operation) = operation {
                    Self::add(path, is_change, operation);
                }
            }
        }
    }
}

pub async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Description::openapi())
}
