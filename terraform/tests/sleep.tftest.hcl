# A server that sleeps: what wakes it, and that nothing of it is there otherwise.

mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  mock_resource "google_service_account" {
    defaults = { email = "tidelock-server@acme-infra.iam.gserviceaccount.com", member = "serviceAccount:tidelock-server@acme-infra.iam.gserviceaccount.com" }
  }
  mock_data "google_secret_manager_secret_version" {
    defaults = { version = "7" }
  }
}

# Another account than the server's.
override_resource {
  target = google_service_account.wake
  values = {
    email     = "tidelock-wake@acme-infra.iam.gserviceaccount.com"
    member    = "serviceAccount:tidelock-wake@acme-infra.iam.gserviceaccount.com"
    name      = "projects/acme-infra/serviceAccounts/tidelock-wake@acme-infra.iam.gserviceaccount.com"
    unique_id = "104857600123456789012"
  }
}

variables {
  project_id     = "acme-infra"
  region         = "europe-west1"
  domain         = "tidelock.example.com"
  image          = "ghcr.io/example/tidelock:0.1.0"
  github         = { user = "acme-bot" }
  repo_allowlist = ["github.com/acme/*"]
  iap_members    = ["group:platform@example.com"]
  secret_values  = { gh_token = "hush-token", gh_webhook_secret = "hush-secret" } # `terraform test` wants ephemeral variables set
}

run "by_default_nothing_of_it_is_there" {
  assert {
    condition     = length(google_service_account.wake) + length(google_cloud_tasks_queue.wake) + length(google_cloud_tasks_queue_iam_member.leader) + length(google_service_account_iam_member.wake) + length(google_cloud_scheduler_job.wake) == 0
    error_message = "Something wakes a server that does not sleep."
  }
  assert {
    condition     = length([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e if strcontains(e.name, "WAKE") || strcontains(e.name, "IDLE")]) == 0
    error_message = "The server is told to sleep."
  }
  assert {
    condition     = !contains(keys(google_project_service.this), "cloudtasks.googleapis.com") && !contains(keys(google_project_service.this), "cloudscheduler.googleapis.com")
    error_message = "An API is switched on that nobody needs."
  }
  assert {
    condition     = length(regexall("(?m)^\\* \\*\\*", google_monitoring_alert_policy.quiet[0].documentation[0].content)) == 3
    error_message = google_monitoring_alert_policy.quiet[0].documentation[0].content
  }
  assert {
    condition     = google_cloud_run_v2_service.leader.default_uri_disabled
    error_message = "The service has an address that nobody needs."
  }
}

run "it_has_a_processor_while_a_request_is_open_only" {
  variables {
    always_on = false
  }
  assert {
    condition     = google_cloud_run_v2_service.leader.scaling[0].min_instance_count == 0 && google_cloud_run_v2_service.leader.scaling[0].max_instance_count == 1
    error_message = "An instance is always there, or there are several."
  }
  assert {
    condition     = google_cloud_run_v2_service.leader.template[0].containers[0].resources[0].cpu_idle && google_cloud_run_v2_service.leader.template[0].containers[0].resources[0].startup_cpu_boost
    error_message = "The processor is billed between requests, or a start takes longer than it has to."
  }
  assert {
    condition     = tonumber(trimsuffix(google_cloud_run_v2_service.leader.template[0].timeout, "s")) >= 1800
    error_message = "/wake is cut before its 25 minutes are over."
  }
}

run "it_is_called_at_an_address_for_callers_inside_only" {
  variables {
    always_on = false
  }
  assert {
    condition     = google_cloud_run_v2_service.leader.ingress == "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" && google_cloud_run_v2_service.leader.default_uri_disabled == false
    error_message = "Tasks find no address, or the internet does."
  }
  assert {
    condition     = google_cloud_run_v2_service.leader.invoker_iam_disabled
    error_message = "Cloud Run removes the signature of the token that the server checks."
  }
  assert {
    condition = { for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e.name => e.value if strcontains(e.name, "WAKE") || strcontains(e.name, "IDLE") } == {
      TIDELOCK_IDLE_RELEASE = "1m"
      TIDELOCK_WAKE_ACCOUNT = "tidelock-wake@acme-infra.iam.gserviceaccount.com"
      TIDELOCK_WAKE_QUEUE   = "projects/acme-infra/locations/europe-west1/queues/tidelock-wake-56789012"
      TIDELOCK_WAKE_URL     = "https://tidelock-123456789012.europe-west1.run.app/wake"
    }
    error_message = "The server does not know what wakes it."
  }
  assert {
    condition     = contains(keys(google_project_service.this), "cloudtasks.googleapis.com") && contains(keys(google_project_service.this), "cloudscheduler.googleapis.com")
    error_message = "An API is not switched on."
  }
}

run "a_task_is_repeated_until_it_is_answered" {
  variables {
    always_on = false
  }
  assert {
    condition     = google_cloud_tasks_queue.wake[0].location == "europe-west1" && google_cloud_tasks_queue.wake[0].retry_config[0].max_attempts == -1 && google_cloud_tasks_queue.wake[0].retry_config[0].max_retry_duration == "0s"
    error_message = "A wake-up is given up."
  }
  assert {
    condition     = google_cloud_tasks_queue.wake[0].retry_config[0].min_backoff == "5s" && google_cloud_tasks_queue.wake[0].retry_config[0].max_backoff == "300s"
    error_message = "A wake-up is repeated at once, or after hours."
  }
  assert {
    condition     = google_cloud_tasks_queue.wake[0].rate_limits[0].max_concurrent_dispatches > 1 && google_cloud_tasks_queue.wake[0].rate_limits[0].max_concurrent_dispatches < 10
    error_message = "One task that hangs keeps all others waiting, or many fill the server."
  }
}

run "tasks_call_nothing_but_wake_whatever_they_say" {
  variables {
    always_on = false
  }
  assert {
    condition = (
      google_cloud_tasks_queue.wake[0].http_target[0].uri_override[0].uri_override_enforce_mode == "ALWAYS"
      && join("", [
        lower(google_cloud_tasks_queue.wake[0].http_target[0].uri_override[0].scheme), "://", google_cloud_tasks_queue.wake[0].http_target[0].uri_override[0].host,
        google_cloud_tasks_queue.wake[0].http_target[0].uri_override[0].path_override[0].path,
      ]) == "https://tidelock-123456789012.europe-west1.run.app/wake"
    )
    error_message = "Code of a pull request could call other services from inside of the project."
  }
  assert {
    condition = google_cloud_tasks_queue.wake[0].http_target[0].oidc_token[0].service_account_email == "tidelock-wake@acme-infra.iam.gserviceaccount.com" && (
      google_cloud_tasks_queue.wake[0].http_target[0].oidc_token[0].audience == "https://tidelock-123456789012.europe-west1.run.app/wake"
    )
    error_message = "Tasks carry a token that the server does not take."
  }
}

run "an_hourly_call_covers_lost_tasks" {
  variables {
    always_on = false
  }
  assert {
    condition     = length(regexall("^[0-9]+ \\* \\* \\* \\*$", google_cloud_scheduler_job.wake[0].schedule)) == 1
    error_message = "It is not called every hour: ${google_cloud_scheduler_job.wake[0].schedule}"
  }
  assert {
    condition     = google_cloud_scheduler_job.wake[0].attempt_deadline == "1800s" && google_cloud_scheduler_job.wake[0].retry_config[0].retry_count > 0
    error_message = "The call is cut before /wake answers, or is not repeated."
  }
  assert {
    condition = google_cloud_scheduler_job.wake[0].http_target[0].http_method == "POST" && alltrue([
      for text in [google_cloud_scheduler_job.wake[0].http_target[0].uri, google_cloud_scheduler_job.wake[0].http_target[0].oidc_token[0].audience] :
      text == "https://tidelock-123456789012.europe-west1.run.app/wake"
    ])
    error_message = "The call goes elsewhere, or its token is made out to something else."
  }
  assert {
    condition     = google_cloud_scheduler_job.wake[0].http_target[0].oidc_token[0].service_account_email == "tidelock-wake@acme-infra.iam.gserviceaccount.com"
    error_message = "The call carries another account's token."
  }
}

run "its_rights_are_on_the_queue_and_the_account" {
  variables {
    always_on = false
  }
  assert {
    condition     = "${google_cloud_tasks_queue_iam_member.leader[0].role} ${google_cloud_tasks_queue_iam_member.leader[0].name} ${google_cloud_tasks_queue_iam_member.leader[0].member}" == "roles/cloudtasks.enqueuer tidelock-wake-56789012 serviceAccount:tidelock-server@acme-infra.iam.gserviceaccount.com"
    error_message = "The server may do something else than add tasks to its queue."
  }
  assert {
    condition     = "${google_service_account_iam_member.wake[0].role} ${google_service_account_iam_member.wake[0].service_account_id} ${google_service_account_iam_member.wake[0].member}" == "roles/iam.serviceAccountUser projects/acme-infra/serviceAccounts/tidelock-wake@acme-infra.iam.gserviceaccount.com serviceAccount:tidelock-server@acme-infra.iam.gserviceaccount.com"
    error_message = "The server may act as another account, or everybody as this one."
  }
}

run "alerts_know_that_it_sleeps" {
  variables {
    always_on = false
  }
  assert {
    condition     = google_monitoring_alert_policy.heartbeat[0].conditions[0].condition_prometheus_query_language[0].query == "(sum(increase(logging_googleapis_com:user_tidelock_heartbeat{monitored_resource=\"cloud_run_revision\"}[3h])) or vector(0)) < 1"
    error_message = "It is an alarm that nobody leads between two hourly calls."
  }
  assert {
    condition     = google_monitoring_alert_policy.inbox_unusable[0].conditions[0].condition_prometheus_query_language[0].query == "sum(increase(logging_googleapis_com:user_tidelock_inbox_unusable{monitored_resource=\"cloud_run_revision\"}[3h])) >= 1"
    error_message = "Five heartbeats in ten minutes are waited for, which a server that sleeps does not write."
  }
  assert {
    condition     = length(google_logging_metric.takeovers) == 0 && length(regexall("takeovers", google_monitoring_alert_policy.quiet[0].conditions[0].condition_prometheus_query_language[0].query)) == 0 && length(regexall("(?m)^\\* \\*\\*", google_monitoring_alert_policy.quiet[0].documentation[0].content)) == 2
    error_message = "Each time that it wakes counts as a lease that changes hands."
  }
  assert {
    condition     = endswith(google_monitoring_alert_policy.restarts[0].conditions[0].condition_prometheus_query_language[0].query, "[30m])) > 8")
    error_message = google_monitoring_alert_policy.restarts[0].conditions[0].condition_prometheus_query_language[0].query
  }
}

run "behind_a_load_balancer_of_ones_own_too" {
  variables {
    always_on    = false
    idle_release = "5m"
    entry        = "existing_load_balancer"
  }
  assert {
    condition     = length(google_cloud_tasks_queue.wake) == 1 && one([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e.value if e.name == "TIDELOCK_IDLE_RELEASE"]) == "5m"
    error_message = "Nothing wakes it, or it sleeps after another time than was asked for."
  }
}

run "without_a_load_balancer_it_cannot_be_woken" {
  command = plan
  variables {
    always_on = false
    entry     = "no_load_balancer"
    domain    = null
  }
  expect_failures = [var.always_on]
}

run "an_hour_is_too_long_to_stay_awake" {
  command = plan
  variables {
    always_on    = false
    idle_release = "1h"
  }
  expect_failures = [var.idle_release]
}

run "what_wakes_it_is_not_a_setting" {
  command = plan
  variables {
    always_on = false
    settings  = { TIDELOCK_WAKE_URL = "https://elsewhere.example.com/wake" }
  }
  expect_failures = [var.settings]
}

run "how_long_it_stays_awake_is_not_a_setting" {
  command = plan
  variables {
    always_on = false
    settings  = { TIDELOCK_IDLE_RELEASE = "1h" }
  }
  expect_failures = [var.always_on]
}

run "an_executor_has_not_its_accounts_name" {
  command = plan
  variables {
    executors = { wake = {} }
  }
  expect_failures = [var.executors]
}
