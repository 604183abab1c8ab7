# A server that sleeps (always_on = false). Cloud Run gives it a processor while a request is open, and ends an idle instance at any time.
# Before the server answers a delivery, and before it sleeps, it adds a task to a queue. The task calls /wake, which stays open while there is
# work. An hourly call replaces lost tasks. Both calls have Google's token of one account, which the server verifies.
#
# They use the service's run.app address. The ingress stays the load balancer and internal callers. Cloud Tasks and Cloud Scheduler of the same
# project are internal callers, at the run.app address only (docs.cloud.google.com/run/docs/securing/ingress). So are the project's networks:
# they bypass Cloud Armor and IAP, but not the server's checks of IAP's assertion, of a delivery's signature and of the token.

locals {
  sleeps = !var.always_on

  wake_url = "https://${local.service_host}/wake"

  wake_settings = local.sleeps ? {
    TIDELOCK_IDLE_RELEASE = var.idle_release
    TIDELOCK_WAKE_ACCOUNT = one(google_service_account.wake[*].email)
    TIDELOCK_WAKE_QUEUE   = "projects/${var.project_id}/locations/${var.region}/queues/${one(google_cloud_tasks_queue.wake[*].name)}"
    TIDELOCK_WAKE_URL     = local.wake_url
  } : {}
}

# It needs no roles/run.invoker: behind a load balancer Cloud Run does not check invokers. Where it does, it removes the signature of the
# token, so that the server could not verify it (cloud.google.com/run/docs/troubleshooting#signature-removed).
resource "google_service_account" "wake" {
  count = local.sleeps ? 1 : 0

  project      = var.project_id
  account_id   = "${var.name}-wake"
  display_name = "Tidelock wake-ups (${var.name})"
  description  = "Identity of the calls to /wake. It has no rights."

  depends_on = [google_project_service.this]
}

# Cloud Tasks refuses the name of a deleted queue for days (m-lab/etl#556, GoogleCloudPlatform/python-docs-samples#4034). The name ends with
# digits of the account's number, so sleep can be turned off and on again.
resource "google_cloud_tasks_queue" "wake" {
  count = local.sleeps ? 1 : 0

  project  = var.project_id
  name     = "${var.name}-wake-${substr(google_service_account.wake[0].unique_id, -8, 8)}"
  location = var.region

  # A call takes up to 25 minutes. With more than one at a time, the next task does not wait for a call to an instance that has gone.
  rate_limits {
    max_concurrent_dispatches = 3
    max_dispatches_per_second = 1
  }

  # Cloud Tasks repeats a task until /wake answers 200: the instance may die, or fail to start.
  retry_config {
    max_attempts       = -1
    max_retry_duration = "0s"
    min_backoff        = "5s"
    max_backoff        = "300s"
  }

  # Replaces the address and the token of each task. Code of a pull request can have the server's rights and add tasks, and a task is an
  # internal caller of every Cloud Run service of the project.
  http_target {
    http_method = "POST"
    uri_override {
      scheme                    = "HTTPS"
      host                      = local.service_host
      uri_override_enforce_mode = "ALWAYS"
      path_override {
        path = "/wake"
      }
    }
    oidc_token {
      service_account_email = google_service_account.wake[0].email
      audience              = local.wake_url
    }
  }

  depends_on = [google_project_service.this]
}

# The server may add tasks to this queue, with tokens of this account. It gets no right on the project.
resource "google_cloud_tasks_queue_iam_member" "leader" {
  count = local.sleeps ? 1 : 0

  project  = var.project_id
  location = var.region
  name     = google_cloud_tasks_queue.wake[0].name
  role     = "roles/cloudtasks.enqueuer"
  member   = google_service_account.leader.member
}

resource "google_service_account_iam_member" "wake" {
  count = local.sleeps ? 1 : 0

  service_account_id = google_service_account.wake[0].name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.leader.member
}

resource "google_cloud_scheduler_job" "wake" {
  count = local.sleeps ? 1 : 0

  project          = var.project_id
  name             = "${var.name}-wake"
  region           = var.region
  description      = "Wakes ${var.name} in case a task was lost"
  schedule         = "23 * * * *"
  time_zone        = "Etc/UTC"
  attempt_deadline = "1800s" # the maximum

  retry_config {
    retry_count          = 3
    min_backoff_duration = "30s"
    max_backoff_duration = "300s"
  }

  http_target {
    http_method = "POST"
    uri         = local.wake_url
    oidc_token {
      service_account_email = google_service_account.wake[0].email
      audience              = local.wake_url
    }
  }

  # Not before the server has the settings of /wake.
  depends_on = [google_project_service.this, google_cloud_run_v2_service.leader]
}
