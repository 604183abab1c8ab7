//! Migrations from each format of the state to the next. A released one is never changed.

/// The first format.
pub(super) const FORMAT_1: &str = "
CREATE TABLE deliveries (
  seq INTEGER PRIMARY KEY,
  identity TEXT NOT NULL UNIQUE,
  host_id TEXT NOT NULL,
  state TEXT NOT NULL,
  received INTEGER NOT NULL,
  finished INTEGER,               -- when it became done
  outcome TEXT NOT NULL DEFAULT '',
  record TEXT                     -- absent once it is done
);
CREATE INDEX deliveries_unfinished ON deliveries (seq) WHERE finished IS NULL;
CREATE INDEX deliveries_finished ON deliveries (finished) WHERE finished IS NOT NULL;

CREATE TABLE runs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  pull TEXT NOT NULL,
  started INTEGER NOT NULL,
  finished INTEGER,
  record TEXT NOT NULL
);
CREATE INDEX runs_unfinished ON runs (seq) WHERE finished IS NULL;
CREATE INDEX runs_finished ON runs (finished) WHERE finished IS NOT NULL;

CREATE TABLE jobs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  run TEXT NOT NULL,
  pull TEXT NOT NULL,
  state TEXT NOT NULL,
  started INTEGER NOT NULL,
  record TEXT NOT NULL
);
CREATE INDEX jobs_unfinished ON jobs (seq) WHERE state = 'running';
CREATE INDEX jobs_started ON jobs (started);

CREATE TABLE locks (
  seq INTEGER PRIMARY KEY,
  host TEXT NOT NULL,
  repo TEXT NOT NULL,             -- owner/name
  dir TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,             -- empty for none
  key TEXT NOT NULL,              -- Atlantis' form, without the host
  pull TEXT NOT NULL,
  since INTEGER NOT NULL,
  record TEXT NOT NULL,
  UNIQUE (host, repo, dir, workspace, name)
);
CREATE INDEX locks_key ON locks (key);
CREATE INDEX locks_pull ON locks (pull);

CREATE TABLE apply_lock (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  record TEXT NOT NULL
);

CREATE TABLE pulls (
  seq INTEGER PRIMARY KEY,
  pull TEXT NOT NULL UNIQUE,
  open INTEGER NOT NULL,
  activity INTEGER NOT NULL,      -- a time, and growing: no two are the same
  record TEXT NOT NULL
);
CREATE INDEX pulls_activity ON pulls (activity);

CREATE TABLE project_statuses (
  seq INTEGER PRIMARY KEY,
  pull TEXT NOT NULL,
  dir TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,
  state TEXT NOT NULL,
  updated INTEGER NOT NULL,
  record TEXT NOT NULL,
  UNIQUE (pull, dir, workspace, name)
);

CREATE TABLE plans (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  pull TEXT NOT NULL,
  dir TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,
  made INTEGER NOT NULL,
  consumed_by TEXT,
  record TEXT NOT NULL,
  UNIQUE (pull, dir, workspace, name)
);

CREATE TABLE effects (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  pull TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  done INTEGER,
  note TEXT NOT NULL DEFAULT '',
  record TEXT                     -- absent once it is done
);
CREATE INDEX effects_pending ON effects (pull, id) WHERE done IS NULL;
CREATE INDEX effects_all_pending ON effects (id) WHERE done IS NULL;
CREATE INDEX effects_done ON effects (done) WHERE done IS NOT NULL;

CREATE TABLE audit (
  seq INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  record TEXT NOT NULL
);
CREATE INDEX audit_at ON audit (at);
";

/// Adds files that are kept beside the database.
pub(super) const FORMAT_2: &str = "
CREATE TABLE kept_files (
  seq INTEGER PRIMARY KEY,
  path TEXT NOT NULL UNIQUE,      -- below the data directory
  sha256 TEXT NOT NULL,
  length INTEGER NOT NULL,
  mode INTEGER NOT NULL
);
";

/// Adds the times since which repositories are served, and indexes, so that no query of a command scans a table.
pub(super) const FORMAT_3: &str = "
CREATE INDEX runs_pull ON runs (pull, started);
CREATE INDEX jobs_run ON jobs (run, seq);
CREATE INDEX jobs_untold ON jobs (seq)
  WHERE state IN ('interrupted', 'failed') AND json_extract(record, '$.state_lock.untold');
CREATE INDEX effects_told ON effects (pull, id) WHERE record IS NOT NULL;
CREATE TABLE repos (
  seq INTEGER PRIMARY KEY,
  repo TEXT NOT NULL UNIQUE,      -- host/owner/name
  served INTEGER NOT NULL,        -- since when it is served with this state
  record TEXT NOT NULL
);
";

/// Adds schedules and claims, with which a leader continues a run of an earlier one.
pub(super) const FORMAT_4: &str = "
CREATE TABLE schedules (
  seq INTEGER PRIMARY KEY,
  run TEXT NOT NULL UNIQUE,
  record TEXT NOT NULL
);
CREATE TABLE claims (
  seq INTEGER PRIMARY KEY,
  run TEXT NOT NULL,
  project TEXT NOT NULL,
  job TEXT NOT NULL,              -- the last one that has claimed the project
  UNIQUE (run, project)
);
";

/// Adds notifications to receivers, repositories that are frozen by hand, and policy checks with their approvals. For mode `strict`, adds
/// owners of projects, the projects that pull requests change, and waiting pull requests.
pub(super) const FORMAT_5: &str = "
CREATE TABLE notifications (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  receiver TEXT NOT NULL,         -- its name, without what is secret in its address
  record TEXT NOT NULL
);
CREATE INDEX notifications_receiver ON notifications (receiver, id);
CREATE TABLE freezes (
  seq INTEGER PRIMARY KEY,
  repo TEXT NOT NULL UNIQUE,      -- host/owner/name
  since INTEGER NOT NULL,
  record TEXT NOT NULL
);
CREATE TABLE policy_checks (
  seq INTEGER PRIMARY KEY,
  pull TEXT NOT NULL,
  dir TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,             -- empty for none
  record TEXT NOT NULL,
  UNIQUE (pull, dir, workspace, name)
);
CREATE TABLE owners (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  host TEXT NOT NULL,
  repo TEXT NOT NULL,             -- owner/name
  dir TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,             -- empty for none
  pull TEXT NOT NULL,
  state TEXT NOT NULL,
  record TEXT NOT NULL,
  UNIQUE (host, repo, dir, workspace, name, pull)
);
CREATE INDEX owners_pull ON owners (pull);
CREATE TABLE changed_projects (
  seq INTEGER PRIMARY KEY,
  pull TEXT NOT NULL UNIQUE,
  record TEXT NOT NULL
);
CREATE TABLE waiters (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  host TEXT NOT NULL,
  repo TEXT NOT NULL,             -- owner/name
  dir TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,             -- empty for none
  pull TEXT NOT NULL,
  since INTEGER NOT NULL,
  record TEXT NOT NULL,
  UNIQUE (host, repo, dir, workspace, name, pull)
);
CREATE INDEX waiters_pull ON waiters (pull);
CREATE INDEX plans_project ON plans (dir, workspace, name);
";

/// Adds the plans that a pull request has had, the findings of drift runs, and indexes. One index is for plans that a push to the base
/// branch may invalidate, one for owners of merged or closed pull requests.
pub(super) const FORMAT_6: &str = "
CREATE INDEX owners_owed ON owners (seq) WHERE state IN ('merged_unapplied', 'closed_applied');
CREATE INDEX plans_strict ON plans (json_extract(record, '$.base_branch'))
  WHERE consumed_by IS NULL AND json_extract(record, '$.inputs') IS NOT NULL;
CREATE TABLE seen_plans (
  seq INTEGER PRIMARY KEY,
  pull TEXT NOT NULL,
  dir TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,             -- empty for none
  record TEXT NOT NULL,
  UNIQUE (pull, dir, workspace, name)
);
CREATE TABLE drift (
  seq INTEGER PRIMARY KEY,
  host TEXT NOT NULL,
  repo TEXT NOT NULL,             -- owner/name
  branch TEXT NOT NULL,
  dir TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,             -- empty for none
  checked INTEGER NOT NULL,
  record TEXT NOT NULL,
  UNIQUE (host, repo, branch, dir, workspace, name)
);
CREATE TABLE remediations (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  host TEXT NOT NULL,
  repo TEXT NOT NULL,             -- owner/name
  started INTEGER NOT NULL,
  record TEXT NOT NULL
);
CREATE INDEX remediations_repo ON remediations (host, repo, started);
";

/// Adds an index of merges whose changed projects are not known yet. Earlier versions can read neither such rows nor projects that are
/// planned or applied in part.
pub(super) const FORMAT_7: &str = "
CREATE INDEX owners_unknown ON owners (seq) WHERE state = 'merged_unknown';
";

/// Adds a table of automatic re-plans, which were deliveries before. Moves those that are not done: `seq` becomes the id, and unfinished runs
/// name it. A re-plan with such a run is running, even if a shutdown has queued its delivery again.
pub(super) const FORMAT_8: &str = "
CREATE TABLE replans (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  pull TEXT NOT NULL,
  state TEXT NOT NULL,            -- queued, running
  queued INTEGER NOT NULL,
  record TEXT NOT NULL
);
CREATE INDEX replans_pull ON replans (pull);
INSERT INTO replans (id, pull, state, queued, record)
  SELECT seq,
    json_extract(record, '$.event.Replan.pull.repo.host') || '/' || json_extract(record, '$.event.Replan.pull.repo.owner') || '/' ||
      json_extract(record, '$.event.Replan.pull.repo.name') || '#' || json_extract(record, '$.event.Replan.pull.number'),
    iif(state = 'running' OR EXISTS
      (SELECT 1 FROM runs WHERE runs.finished IS NULL AND json_extract(runs.record, '$.delivery') = identity), 'running', 'queued'),
    received,
    json_extract(record, '$.event.Replan')
  FROM deliveries WHERE finished IS NULL AND json_extract(record, '$.event.Replan') IS NOT NULL ORDER BY seq;
UPDATE runs SET record = json_set(record, '$.delivery', NULL, '$.replan', moved.seq)
  FROM (SELECT seq, identity FROM deliveries WHERE finished IS NULL AND json_extract(record, '$.event.Replan') IS NOT NULL) AS moved
  WHERE runs.finished IS NULL AND json_extract(runs.record, '$.delivery') = moved.identity;
DELETE FROM deliveries WHERE finished IS NULL AND json_extract(record, '$.event.Replan') IS NOT NULL;
";

/// Adds indexes of jobs and plans that have objects in the bucket. Earlier versions would tell jobs at executors as interrupted.
pub(super) const FORMAT_9: &str = "
CREATE INDEX jobs_lost ON jobs (seq) WHERE state = 'interrupted' AND json_extract(record, '$.remote') IS NOT NULL;
CREATE INDEX plans_tree ON plans (seq) WHERE json_extract(record, '$.tree') IS NOT NULL;
";

/// Adds indexes for the pages of runs: filters of the list of runs are answered from the first one alone, in the order of the runs, and the
/// projects of runs from the second one.
pub(super) const FORMAT_10: &str = "
CREATE INDEX runs_history ON runs (
  seq, pull, lower(json_extract(record, '$.user')), json_extract(record, '$.command'),
  CASE WHEN finished IS NULL THEN 'running'
    ELSE coalesce(json_extract(record, '$.end'), iif(json_extract(record, '$.answered'), 'ended', 'stopped')) END
);
CREATE INDEX jobs_projects ON jobs (
  pull, json_extract(record, '$.project.dir'), json_extract(record, '$.project.workspace'), json_extract(record, '$.project.name'),
  json_extract(record, '$.kind'), run
);
";

/// Adds the projects that a run has refused, which have no job, and indexes for pages. For the audit log, each filter has one, in the order
/// of the entries; an entry without a pull request has its repository in its subject: alone, or after the project of a drift run. Others are
/// for the list of open pull requests, for jobs and drift of one state of a repository, and for the people who have asked for runs.
pub(super) const FORMAT_11: &str = "
CREATE INDEX audit_who ON audit (lower(json_extract(record, '$.who')), at);
CREATE INDEX audit_act ON audit (json_extract(record, '$.act'), at);
CREATE INDEX audit_pull ON audit (json_extract(record, '$.pull.number'), at);
CREATE INDEX audit_project ON audit (json_extract(record, '$.project'), at);
CREATE INDEX audit_request ON audit (json_extract(record, '$.request'), at);
CREATE INDEX audit_result ON audit (
  substr(json_extract(record, '$.result'), 1,
    instr(replace(replace(json_extract(record, '$.result'), ';', ':'), ',', ':') || ':', ':') - 1), at);
CREATE INDEX audit_repo ON audit (
  CASE WHEN json_extract(record, '$.pull') IS NOT NULL THEN json_extract(record, '$.pull.repo.host') || '/' ||
      json_extract(record, '$.pull.repo.owner') || '/' || json_extract(record, '$.pull.repo.name')
    WHEN json_extract(record, '$.project') IS NULL THEN json_extract(record, '$.subject')
    ELSE substr(json_extract(record, '$.subject'), length(json_extract(record, '$.project')) + 5,
      length(json_extract(record, '$.subject')) - length(json_extract(record, '$.project')) - 8 -
      length(json_extract(record, '$.commit'))) END, at);
CREATE INDEX pulls_open ON pulls (activity, pull) WHERE open;
CREATE INDEX jobs_states ON jobs (
  rtrim(pull, '0123456789'), json_extract(record, '$.project.dir'), json_extract(record, '$.project.workspace'),
  json_extract(record, '$.kind')
);
CREATE INDEX drift_states ON drift (host, repo, dir, workspace, checked);
CREATE INDEX runs_people ON runs (lower(json_extract(record, '$.user')));
CREATE TABLE refused_projects (
  seq INTEGER PRIMARY KEY,
  run TEXT NOT NULL,
  dir TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL              -- empty for none
);
CREATE UNIQUE INDEX refused_projects_run ON refused_projects (run, dir, workspace, name);
CREATE INDEX refused_projects_states ON refused_projects (dir, workspace, run);
INSERT INTO refused_projects (run, dir, workspace, name)
  SELECT DISTINCT runs.id, json_extract(value, '$.dir'), coalesce(json_extract(value, '$.workspace'), ''),
    coalesce(json_extract(value, '$.project'), '')
  FROM runs, json_each(runs.record, '$.results')
  WHERE json_valid(value) AND json_extract(value, '$.outcome') = 'failure' AND json_extract(value, '$.dir') IS NOT NULL;
";

/// Adds the latest scheduled drift detection of each repository.
pub(super) const FORMAT_12: &str = "
CREATE TABLE drift_checks (
  seq INTEGER PRIMARY KEY,
  host TEXT NOT NULL,
  repo TEXT NOT NULL,             -- owner/name
  record TEXT NOT NULL,
  UNIQUE (host, repo)
);
";

/// Drops two indexes of the audit log, which made a commit of an entry slower with each million entries: results are few and common, and what asked for an entry is
/// looked for with its pull request or its time.
pub(super) const FORMAT_13: &str = "
DROP INDEX audit_request;
DROP INDEX audit_result;
";

/// Adds issues about drift, whose effects earlier versions cannot read, and the times of the steps of jobs.
pub(super) const FORMAT_14: &str = "
CREATE TABLE drift_issues (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  host TEXT NOT NULL,
  repo TEXT NOT NULL,             -- owner/name
  branch TEXT NOT NULL,
  dir TEXT NOT NULL,
  workspace TEXT NOT NULL,
  name TEXT NOT NULL,             -- empty for none
  record TEXT NOT NULL
);
CREATE INDEX drift_issues_project ON drift_issues (host, repo, branch, dir, workspace, name);
CREATE TABLE job_times (
  seq INTEGER PRIMARY KEY,
  job TEXT NOT NULL UNIQUE,
  record TEXT NOT NULL
);
";
