"""Drives the forge with python-gitlab, a client that knows nothing of it. Arguments: address, token, token of another person, project."""

import sys

import gitlab

url, token, other, name = sys.argv[1:]


def refused(status, act):
    try:
        act()
    except gitlab.exceptions.GitlabError as error:
        assert error.response_code == status, (status, error)
        return str(error)
    raise AssertionError(f"{status} was expected")


gl = gitlab.Gitlab(url, private_token=token)
gl.auth()
bob = gitlab.Gitlab(url, private_token=other)
bob.auth()
assert gl.user.username == "tidelock-bot" and bob.user.username == "bob"
assert gl.version()[0].startswith("18.")
assert gl.personal_access_tokens.get("self").scopes == ["api"]
refused(401, gitlab.Gitlab(url, private_token="wrong").auth)

project = gl.projects.get(name)
assert project.path_with_namespace == name
assert [one.id for one in gl.projects.list(membership=True, get_all=True)] == [project.id]
assert refused(404, lambda: gl.projects.get("acme/none")) == "404: 404 Project Not Found"

[listed] = project.mergerequests.list(state="opened", get_all=True)
request = project.mergerequests.get(listed.iid)
assert (request.state, request.target_branch, request.author["username"]) == ("opened", "main", "alice")
assert request.references["full"] == f"{name}!{request.iid}"
assert len(list(request.commits())) == 1
assert project.mergerequests.get(request.iid).detailed_merge_status == "mergeable"

for number in range(45):
    request.notes.create({"body": f"note {number}"})
notes = request.notes.list(sort="asc", order_by="created_at", iterator=True, per_page=20)
assert [note.body for note in notes if not note.system] == [f"note {number}" for number in range(45)]
note = request.notes.create({"body": "first"})
note.body = "second"
note.save()
assert request.notes.get(note.id).body == "second"
note.awardemojis.create({"name": "eyes"})
refused(404, lambda: note.awardemojis.create({"name": "eyes"}))
assert [emoji.name for emoji in note.awardemojis.list(get_all=True)] == ["eyes"]
refused(403, lambda: bob.projects.get(name).mergerequests.get(request.iid).notes.get(note.id).delete())
note.delete()
refused(404, lambda: request.notes.get(note.id))

commit = project.commits.get(request.sha, lazy=True)
status = {"state": "running", "name": "atlantis/plan", "ref": request.source_branch}
assert commit.statuses.create(status).status == "running"
assert project.mergerequests.get(request.iid).head_pipeline["status"] == "running"
commit.statuses.create({**status, "state": "success", "target_url": "https://example.com", "description": "Done."})
[found] = commit.statuses.list(get_all=True)
assert (found.status, found.author["username"], found.description) == ("success", "tidelock-bot", "Done.")
refused(400, lambda: commit.statuses.create({**status, "state": "failure"}))
assert [ref["name"] for ref in commit.refs("branch")] == [request.source_branch]
assert project.repository_merge_base(["main", request.source_branch])["id"] == request.diff_refs["base_sha"]
assert project.branches.get("main").commit["id"] == project.repository_merge_base(["main", "main"])["id"]
assert project.files.raw(file_path="main.tf", ref="main") == b"a = 1\n"

[user] = gl.users.list(username="bob", get_all=True)
member = project.members_all.get(user.id)
assert (member.access_level, member.state) == (gitlab.const.AccessLevel.DEVELOPER, "active")
assert gl.users.list(username="nobody", get_all=True) == []
group = gl.groups.get("acme", lazy=True)
assert group.members_all.get(user.id).access_level == gitlab.const.AccessLevel.REPORTER
assert project.events.list(action="pushed", get_all=True)[0].author_username == "alice"

theirs = bob.projects.get(name).mergerequests.get(request.iid)
refused(409, lambda: theirs.approve(sha="0" * 40))
theirs.approve(sha=request.sha)
approvals = request.approvals.get()
assert [one["user"]["username"] for one in approvals.approved_by] == ["bob"]
assert [(one.user["username"], one.state) for one in request.reviewer_details.list(get_all=True)] == [("bob", "approved")]
refused(401, request.reset_approvals)

[hook] = project.hooks.list(get_all=True)
assert (hook.merge_requests_events, hook.alert_status) == (True, "executable")
refused(403, lambda: bob.projects.get(name).hooks.list(get_all=True))

refused(401, theirs.merge)
refused(409, lambda: request.merge(sha="0" * 40))
request.merge(sha=request.sha, should_remove_source_branch=True)
merged = project.mergerequests.get(request.iid)
assert (merged.state, merged.detailed_merge_status) == ("merged", "not_open")
assert merged.merge_commit_sha == project.branches.get("main").commit["id"]
refused(404, lambda: project.branches.get(request.source_branch))
refused(405, lambda: request.merge(sha=request.sha))
