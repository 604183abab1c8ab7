//! `/openapi.json`: parameters and responses of every route, generated from the table of routes.

use super::answer::{HttpProblem, Visit};
use super::{Route, Site, TokenScope, Who};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, PathsBuilder, Ref, RefOr, Required,
    ResponseBuilder,
};

/// Every problem of the API.
#[derive(Serialize, ToSchema)]
struct Problem {
    /// For people, with what to do next.
    error: String,
}

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Content of a body.
#[derive(Clone, Copy)]
enum Shape {
    Empty,
    Text(&'static str),
    Json(fn(&mut Schemas) -> RefOr<Schema>),
}

const HTML: Shape = Shape::Text("text/html");
const PLAIN: Shape = Shape::Text("text/plain");

/// Description of a route.
pub(super) struct RouteDoc {
    summary: &'static str,
    /// Name, part of the path or not, required or not, meaning.
    parameters: Vec<(&'static str, bool, bool, &'static str)>,
    body: Option<Shape>,
    answers: Vec<(u16, Vec<Shape>)>,
}

/// Returns a description with this summary.
pub(super) fn about(summary: &'static str) -> RouteDoc {
    RouteDoc { summary, parameters: Vec::new(), body: None, answers: Vec::new() }
}

impl RouteDoc {
    /// Adds a response with a page.
    pub(super) fn page(self) -> RouteDoc {
        self.answer(200, vec![HTML])
    }

    /// Adds a response with text.
    pub(super) fn text(self, content_type: &'static str) -> RouteDoc {
        self.answer(200, vec![Shape::Text(content_type)])
    }

    /// Adds a successful response with this type.
    pub(super) fn json<T: ToSchema>(self) -> RouteDoc {
        self.json_with::<T>(200)
    }

    /// Adds a response with this type and status.
    pub(super) fn json_with<T: ToSchema>(self, status: u16) -> RouteDoc {
        self.answer(status, vec![Shape::Json(schema_of::<T>)])
    }

    /// Adds responses with this type in the envelope of drift runs, and these statuses.
    pub(super) fn drift<T: ToSchema>(self, statuses: &[u16]) -> RouteDoc {
        statuses.iter().fold(self, |doc, status| doc.answer(*status, vec![Shape::Json(drift_answer::<T>)]))
    }

    /// Adds the responses of a change: text for scripts, a redirect to the dashboard for browsers.
    pub(super) fn change(self) -> RouteDoc {
        self.answer(200, vec![PLAIN]).answer(303, vec![Shape::Empty])
    }

    /// Adds a redirect to another page.
    pub(super) fn redirect(self) -> RouteDoc {
        self.answer(303, vec![Shape::Empty])
    }

    /// Adds these problems.
    pub(super) fn problems(self, statuses: &[u16]) -> RouteDoc {
        statuses.iter().fold(self, |doc, status| doc.answer(*status, Vec::new()))
    }

    /// Adds a parameter in the path.
    pub(super) fn part(mut self, name: &'static str, meaning: &'static str) -> RouteDoc {
        self.parameters.push((name, true, true, meaning));
        self
    }

    /// Adds a required parameter of the query.
    pub(super) fn query(mut self, name: &'static str, meaning: &'static str) -> RouteDoc {
        self.parameters.push((name, false, true, meaning));
        self
    }

    /// Adds an optional parameter of the query.
    pub(super) fn optional_query(mut self, name: &'static str, meaning: &'static str) -> RouteDoc {
        self.parameters.push((name, false, false, meaning));
        self
    }

    /// Sets a JSON body of this type.
    pub(super) fn takes<T: ToSchema>(mut self) -> RouteDoc {
        self.body = Some(Shape::Json(schema_of::<T>));
        self
    }

    /// Sets the body of a host's delivery.
    pub(super) fn takes_delivery(mut self) -> RouteDoc {
        self.body = Some(Shape::Text("application/json"));
        self
    }

    fn answer(mut self, status: u16, shapes: Vec<Shape>) -> RouteDoc {
        self.answers.push((status, shapes));
        self
    }
}

/// Records a type and those in it; returns a reference to it.
fn schema_of<T: ToSchema>(all: &mut Schemas) -> RefOr<Schema> {
    let mut inner = Vec::new();
    T::schemas(&mut inner);
    all.extend(inner);
    all.insert(T::name().into_owned(), T::schema());
    Ref::from_schema_name(T::name()).into()
}

/// Returns the schema of a drift run's response with this data.
fn drift_answer<T: ToSchema>(all: &mut Schemas) -> RefOr<Schema> {
    let data = schema_of::<T>(all);
    in_envelope(data, nothing())
}

/// Returns the schema of a drift run's problem.
fn drift_problem(all: &mut Schemas) -> RefOr<Schema> {
    let error = schema_of::<super::drift::DriftError>(all);
    in_envelope(nothing(), error)
}

fn nothing() -> RefOr<Schema> {
    Schema::from(ObjectBuilder::new().schema_type(Type::Null)).into()
}

fn in_envelope(data: RefOr<Schema>, error: RefOr<Schema>) -> RefOr<Schema> {
    let success = Schema::from(ObjectBuilder::new().schema_type(Type::Boolean));
    let all = [
        ("success", success.into()),
        ("data", data),
        ("error", error),
        ("request_id", text().into()),
        ("timestamp", text().into()),
    ];
    let add =
        |object: ObjectBuilder, (name, schema): (&str, RefOr<Schema>)| object.property(name, schema).required(name);
    Schema::from(all.into_iter().fold(ObjectBuilder::new(), add)).into()
}

/// Serves the document.
pub(super) async fn serve(State(site): State<Arc<Site>>) -> Response {
    let document = document(&super::table(&site.state)).to_json().unwrap_or_default();
    super::answer::typed("application/json", document)
}

/// Serves the page that shows the document.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
) -> Result<Response, HttpProblem> {
    let document = document(&super::table(&site.state));
    Ok(site.pages.page("api.html", &visit, &document)?)
}

/// Builds the document of these routes.
pub(super) fn document(routes: &[Route]) -> OpenApi {
    let (mut schemas, mut paths) = (Schemas::new(), PathsBuilder::new());
    for route in routes {
        let method = match route.method.as_str() {
            "POST" => HttpMethod::Post,
            "DELETE" => HttpMethod::Delete,
            _ => HttpMethod::Get,
        };
        // The router writes the rest of a path as `{*name}`.
        paths = paths.path(route.path.replace("{*", "{"), PathItem::new(method, operation(route, &mut schemas)));
    }
    let token = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("X-Atlantis-Token")));
    let login = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Basic).build());
    let components = schemas.into_iter().fold(ComponentsBuilder::new(), |all, (name, schema)| all.schema(name, schema));
    let about = "Paths are relative to the server's address. `token` is the server's api-secret, or a token of `tidelock token` with the \
                 scope that an operation names; `login` is needed where \
                 web-basic-auth is set.";
    let info = InfoBuilder::new().title("Tidelock").version(super::pages::VERSION).description(Some(about));
    OpenApiBuilder::new()
        .info(info.build())
        .paths(paths)
        .components(Some(components.security_scheme("token", token).security_scheme("login", login).build()))
        .build()
}

fn operation(route: &Route, schemas: &mut Schemas) -> utoipa::openapi::path::Operation {
    let RouteDoc { summary, parameters, body, answers } = &route.doc;
    let mut operation = OperationBuilder::new().summary(Some(*summary));
    for (name, in_path, needed, meaning) in parameters {
        let parameter = ParameterBuilder::new()
            .name(*name)
            .parameter_in(if *in_path { ParameterIn::Path } else { ParameterIn::Query })
            .required(if *needed { Required::True } else { Required::False })
            .description(Some(*meaning))
            .schema(Some(text()));
        operation = operation.parameter(parameter);
    }
    if let Some(shape) = body {
        let (content_type, content) = content(*shape, schemas);
        let body = RequestBodyBuilder::new().required(Some(Required::True)).content(content_type, content.build());
        operation = operation.request_body(Some(body.build()));
    }
    let mut all: BTreeMap<u16, Vec<Shape>> =
        problems_of(route.who).iter().map(|status| (*status, Vec::new())).collect();
    for (status, shapes) in answers {
        all.entry(*status).or_default().extend(shapes);
    }
    let is_json = route.path.starts_with("/api/") || matches!(route.who, Who::Api(_) | Who::Token(_));
    let problem = if route.path.starts_with(super::drift::PREFIX) {
        vec![Shape::Json(drift_problem)]
    } else if is_json {
        vec![Shape::Json(schema_of::<Problem>)]
    } else {
        vec![PLAIN, HTML]
    };
    for (status, mut shapes) in all {
        // Internal errors respond with a problem, besides other bodies of a 500.
        if status >= 400 && (shapes.is_empty() || status == 500) {
            shapes.extend(&problem);
        }
        operation = operation.response(status.to_string(), response(status, &shapes, schemas));
    }
    let required = |name: &str| SecurityRequirement::new(name, Vec::<String>::new());
    let scoped = |scope: TokenScope| SecurityRequirement::new("token", [scope.as_str()]);
    let ways = match route.who {
        Who::Host | Who::Probes | Who::Wake | Who::Everyone => Vec::new(),
        Who::People => vec![required("login"), SecurityRequirement::default()],
        Who::Api(scope) => vec![scoped(scope), required("login"), SecurityRequirement::default()],
        Who::Token(scope) => vec![scoped(scope)],
    };
    if !ways.is_empty() {
        operation = operation.securities(Some(ways));
    }
    operation.build()
}

/// Builds a response with one of these bodies.
fn response(status: u16, shapes: &[Shape], schemas: &mut Schemas) -> utoipa::openapi::Response {
    let mut json = OneOfBuilder::new();
    let mut response = ResponseBuilder::new().description(reason(status));
    let several = shapes.iter().filter(|shape| matches!(shape, Shape::Json(_))).count() > 1;
    for shape in shapes.iter().filter(|shape| !matches!(shape, Shape::Empty)) {
        match shape {
            Shape::Json(schema) if several => json = json.item(schema(schemas)),
            shape => {
                let (content_type, content) = content(*shape, schemas);
                response = response.content(content_type, content.build());
            }
        }
    }
    if several {
        response = response.content("application/json", ContentBuilder::new().schema(Some(json)).build());
    }
    response.build()
}

/// Returns the statuses with which the gate in front of a route refuses.
fn problems_of(who: Who) -> &'static [u16] {
    match who {
        Who::Host | Who::Probes | Who::Wake => &[],
        Who::Everyone => &[403, 429],
        Who::People | Who::Api(_) | Who::Token(_) => &[401, 403, 429, 500, 503],
    }
}

fn text() -> Schema {
    ObjectBuilder::new().schema_type(Type::String).into()
}

fn content(shape: Shape, schemas: &mut Schemas) -> (&'static str, ContentBuilder) {
    match shape {
        Shape::Empty => ("text/plain", ContentBuilder::new()),
        Shape::Text("application/json") => ("application/json", ContentBuilder::new()),
        Shape::Text(content_type) => (content_type, ContentBuilder::new().schema(Some(text()))),
        Shape::Json(schema) => ("application/json", ContentBuilder::new().schema(Some(schema(schemas)))),
    }
}

fn reason(status: u16) -> &'static str {
    let code = http::StatusCode::from_u16(status).ok();
    code.and_then(|code| code.canonical_reason()).unwrap_or("Answer")
}
