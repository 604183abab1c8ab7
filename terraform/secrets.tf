# Secrets lie in Secret Manager; the state knows their names only. By default they exist before this runs (scripts/deploy makes
# them); create_secrets makes them here, with values through write-only arguments.

locals {
  with_github = var.github != null || var.github_app != null

  # Key → variable of the server, of the hosts that are served: whoever guards less, gets less.
  credentials = merge(
    var.github == null ? {} : { gh_token = "TIDELOCK_GH_TOKEN" },
    var.github_app == null ? {} : { gh_app_key = "TIDELOCK_GH_APP_KEY" },
    var.azuredevops == null ? {} : { azuredevops_token = "TIDELOCK_AZUREDEVOPS_TOKEN" },
    var.gitlab == null ? {} : { gitlab_token = "TIDELOCK_GITLAB_TOKEN" },
    var.gitea == null ? {} : { gitea_token = "TIDELOCK_GITEA_TOKEN" },
    var.bitbucket == null ? {} : { bitbucket_token = "TIDELOCK_BITBUCKET_TOKEN" },
    var.bitbucket_data_center == null ? {} : { bitbucket_data_center_token = "TIDELOCK_BITBUCKET_DATA_CENTER_TOKEN" },
  )
  webhook_credentials = merge(
    local.with_github ? { gh_webhook_secret = "TIDELOCK_GH_WEBHOOK_SECRET" } : {},
    var.azuredevops == null ? {} : { azuredevops_webhook_password = "TIDELOCK_AZUREDEVOPS_WEBHOOK_PASSWORD" },
    var.gitlab == null ? {} : { gitlab_webhook_secret = "TIDELOCK_GITLAB_WEBHOOK_SECRET" },
    var.gitea == null ? {} : { gitea_webhook_secret = "TIDELOCK_GITEA_WEBHOOK_SECRET" },
    var.bitbucket == null ? {} : { bitbucket_webhook_secret = "TIDELOCK_BITBUCKET_WEBHOOK_SECRET" },
    var.bitbucket_data_center == null ? {} : { bitbucket_data_center_webhook_secret = "TIDELOCK_BITBUCKET_DATA_CENTER_WEBHOOK_SECRET" },
  )

  secret_names = {
    for key in keys(merge(local.credentials, local.webhook_credentials)) :
    key => coalesce(var.secrets[key], "${var.name}-${replace(key, "_", "-")}")
  }

  # By reference where they are made here, so that the service waits for them.
  secret_ids = {
    for k, name in local.secret_names : k => var.create_secrets ? google_secret_manager_secret.own[k].secret_id : name
  }

  # While a webhook secret changes, servers take the version before it too: key of the version before → key of the secret.
  previous = {
    for before, key in {
      gh_previous_webhook_secret                    = "gh_webhook_secret"
      azuredevops_previous_webhook_password         = "azuredevops_webhook_password"
      gitlab_previous_webhook_secret                = "gitlab_webhook_secret"
      gitea_previous_webhook_secret                 = "gitea_webhook_secret"
      bitbucket_previous_webhook_secret             = "bitbucket_webhook_secret"
      bitbucket_data_center_previous_webhook_secret = "bitbucket_data_center_webhook_secret"
    } : before => key if contains(keys(var.secret_versions), before) && contains(keys(local.webhook_credentials), key)
  }

  # Variable of the server → key in leader_secrets; those that verify deliveries are the receiver's, too. Tokens and the App's key may be
  # files instead.
  webhook_env = merge(
    { for key, variable in local.webhook_credentials : variable => key },
    { for before, key in local.previous : replace(local.webhook_credentials[key], "_WEBHOOK_", "_PREVIOUS_WEBHOOK_") => before },
  )
  secret_files = var.token_as_file ? local.credentials : {}
  secret_env = merge(
    local.webhook_env,
    var.token_as_file ? {} : { for key, variable in local.credentials : variable => key },
    { for variable in keys(var.secret_env) : variable => variable },
  )

  # Keys are known while planning, values perhaps not.
  leader_secrets = merge(
    local.secret_ids,
    { for before, key in local.previous : before => local.secret_ids[key] },
    var.secret_env,
  )

  makes_versions = var.create_secrets && var.secret_values_version > 0

  # A number, never "latest": a new version is a change that Terraform sees and rolls out, and old revisions keep their value.
  secret_versions = {
    for key in values(local.secret_env) : key => (
      contains(keys(var.secret_versions), key) ? var.secret_versions[key]
      : contains(keys(google_secret_manager_secret_version.own), key) ? google_secret_manager_secret_version.own[key].version
      : data.google_secret_manager_secret_version.newest[key].version
    )
  }
}

# The number of the newest version, without its value.
data "google_secret_manager_secret_version" "newest" {
  for_each = {
    for key in values(local.secret_env) : key => local.leader_secrets[key]
    if !contains(keys(var.secret_versions), key) && !(local.makes_versions && contains(keys(local.secret_names), key))
  }

  project           = var.project_id
  secret            = each.value
  fetch_secret_data = false
}

resource "google_secret_manager_secret" "own" {
  for_each = var.create_secrets ? local.secret_names : {}

  project   = var.project_id
  secret_id = each.value
  labels    = local.labels

  # Old versions stay usable for a day after somebody destroys them.
  version_destroy_ttl = "86400s"

  replication {
    dynamic "auto" {
      for_each = length(var.secret_locations) == 0 ? [true] : []
      content {}
    }

    dynamic "user_managed" {
      for_each = length(var.secret_locations) == 0 ? [] : [true]
      content {
        dynamic "replicas" {
          for_each = var.secret_locations
          content {
            location = replicas.value
          }
        }
      }
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_secret_manager_secret_version" "own" {
  for_each = local.makes_versions ? local.secret_names : {}

  secret                 = google_secret_manager_secret.own[each.key].id
  secret_data_wo         = var.secret_values == null ? null : var.secret_values[each.key]
  secret_data_wo_version = var.secret_values_version

  # The running revision names the old version until the new revision is there.
  lifecycle {
    create_before_destroy = true
  }
}

# The version before the present one lies in the same secret: a grant of its own would take the other's right with it when it goes.
resource "google_secret_manager_secret_iam_member" "leader" {
  for_each = merge(local.secret_ids, var.secret_env)

  project   = var.project_id
  secret_id = each.value
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.leader.member
}

resource "google_secret_manager_secret_iam_member" "inbox" {
  for_each = local.with_balancer ? {} : local.webhook_credentials

  project   = var.project_id
  secret_id = local.secret_ids[each.key]
  role      = "roles/secretmanager.secretAccessor"
  member    = one(google_service_account.inbox[*].member)
}

moved {
  from = google_secret_manager_secret_iam_member.inbox[0]
  to   = google_secret_manager_secret_iam_member.inbox["gh_webhook_secret"]
}
