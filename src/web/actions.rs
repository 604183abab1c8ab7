//! `/actions/{action}`: the buttons for commands on a pull request. `panel` has their forms.

mod panel;

use super::Site;
use super::answer::{HttpProblem, Visit};
use super::locks::FormFields;
use super::openapi::about;
use super::pages::pull_address;
use super::pulls::parse_pull;
use super::{Route, Who, route};
use crate::dispatch::{PageCommand, PageVisitor, button_command};
use crate::domain::ProjectId;
use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{Method, StatusCode};
pub(super) use panel::{ActionFacts, ActionPanel, PanelScope, RequestNotice};
use std::sync::Arc;
use url::form_urlencoded;

/// Returns the route of the buttons.
pub(super) fn routes() -> Vec<Route> {
    let action = about("Asks for a command on a pull request, as a comment does. The answer is a comment.");
    let action = action
        .part("action", "plan, apply, cancel, unlock, approve_policies, freeze or unfreeze.")
        .query("pull", "host/owner/name/number.")
        .query("key", "32 hexadecimal digits: a command that asks for the same with the same key is not run again.")
        .optional_query("head", "The commit that the person saw; cancel, freeze and unfreeze need none.")
        .optional_query("project", "dir=…&workspace=…&name=…, encoded once more: the only project.")
        .optional_query("reason", "The reason of an unlock or a freeze.");
    let action = action.change().problems(&[400, 404, 413]);
    vec![route(Method::POST, "/actions/{action}", Who::People, ask, action)]
}

/// Returns a project as the value of a form's field.
fn project_field(project: &ProjectId) -> String {
    let mut fields = form_urlencoded::Serializer::new(String::new());
    fields.append_pair("dir", &project.dir).append_pair("workspace", &project.workspace);
    if let Some(name) = &project.name {
        fields.append_pair("name", name);
    }
    fields.finish()
}

fn parse_project(field: &str) -> Option<ProjectId> {
    let value = |key: &str| {
        let found = form_urlencoded::parse(field.as_bytes()).find(|(name, _)| name == key);
        found.map(|(_, value)| value.into_owned())
    };
    Some(ProjectId { dir: value("dir")?, workspace: value("workspace")?, name: value("name") })
}

/// Records a command, and sends the browser to the page of the pull request, which tells what becomes of it.
async fn ask(
    State(site): State<Arc<Site>>,
    Extension(visit): Extension<Visit>,
    Path(action): Path<String>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let services = site.services()?;
    let wrong = |text: &str| HttpProblem::new(StatusCode::BAD_REQUEST, "Wrong request", text);
    let name = button_command(&action).ok_or_else(|| HttpProblem::not_found("There is no such action."))?;
    let person = visit.actor().ok_or_else(HttpProblem::unproved)?;
    let fields = FormFields::read(request).await?;
    let pull = fields.get("pull").and_then(parse_pull).ok_or_else(|| wrong("The form names no pull request."))?;
    let project = fields.get("project").map(|field| parse_project(field).ok_or(field));
    let project = project.transpose().map_err(|_| wrong("The form names no project that can be meant."))?;
    let text = |field: &str| fields.get(field).unwrap_or_default().to_owned();
    let (person, is_operator) = (person.to_owned(), visit.visitor == PageVisitor::Operator);
    let address = format!("{}{}", visit.root, pull_address(&pull));
    let (head, why, key) = (text("head"), text("reason"), text("key"));
    let asked = PageCommand { person, is_operator, pull, name, project, head, why, key };
    let address = format!("{address}?request={}", services.dispatch.command_from_page(asked).await?);
    if visit.browser {
        return Ok(Redirect::to(&address).into_response());
    }
    Ok("Recorded. The answer will be a comment on the pull request.\n".into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_the_value_of_a_field_whatever_its_name() {
        for (dir, workspace, name) in
            [(".", "default", None), ("a b/ü&x=1", "w+%", Some("n&dir=other")), ("\"><script>", "default", Some(""))]
        {
            let project = ProjectId { dir: dir.into(), workspace: workspace.into(), name: name.map(str::to_owned) };
            assert_eq!(parse_project(&project_field(&project)), Some(project));
        }
        for field in ["", "dir=a", "workspace=b", "a"] {
            assert_eq!(parse_project(field), None, "{field}");
        }
    }
}
