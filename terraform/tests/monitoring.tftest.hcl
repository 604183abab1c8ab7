# What hurts quietly is told: nothing else shows a delivery that was refused before it reached the server.

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

variables {
  project_id     = "acme-infra"
  region         = "europe-west1"
  domain         = "tidelock.example.com"
  image          = "ghcr.io/example/tidelock:0.1.0"
  github         = { user = "acme-bot" }
  repo_allowlist = ["github.com/acme/*"]
  secret_values  = { gh_token = "hush-token", gh_webhook_secret = "hush-secret" } # `terraform test` wants ephemeral variables set
}

run "refused_deliveries_are_counted_where_cloud_armor_refuses_them" {
  assert {
    condition     = strcontains(google_logging_metric.refused[0].filter, "resource.type=\"http_load_balancer\" AND resource.labels.backend_service_name=\"tidelock-events\"")
    error_message = "Requests to another backend are counted: ${google_logging_metric.refused[0].filter}"
  }
  # A scanner that finds /events is refused as well, and nobody needs to know.
  assert {
    condition     = strcontains(google_logging_metric.refused[0].filter, "httpRequest.status=429 OR (httpRequest.status=403 AND httpRequest.userAgent=~\"^(GitHub-Hookshot/|VSServices/|GitLab/|Bitbucket-Webhooks/)\")")
    error_message = "Refusals are not told from those of scanners: ${google_logging_metric.refused[0].filter}"
  }
  assert {
    condition     = google_logging_metric.refused[0].label_extractors == tomap({ status = "EXTRACT(httpRequest.status)" })
    error_message = "Too many and refused are not told apart."
  }
}

run "one_condition_tells_all_of_them" {
  assert {
    condition     = length(google_monitoring_alert_policy.quiet[0].conditions) == 1 && google_monitoring_alert_policy.quiet[0].conditions[0].condition_prometheus_query_language[0].disable_metric_validation
    error_message = "Each condition costs, and one on a metric of ours is refused for ten minutes unless it is not validated."
  }
  assert {
    condition = alltrue([for part in [
      "user_tidelock_refused{status=\"403\",monitored_resource=\"l7_lb_rule\"}", "user_tidelock_refused{status=\"429\",monitored_resource=\"l7_lb_rule\"}",
      "user_tidelock_takeovers{monitored_resource=\"cloud_run_revision\"}",
    ] : strcontains(google_monitoring_alert_policy.quiet[0].conditions[0].condition_prometheus_query_language[0].query, part)])
    error_message = google_monitoring_alert_policy.quiet[0].conditions[0].condition_prometheus_query_language[0].query
  }
  # `or` joins series whose labels differ.
  assert {
    condition     = length(distinct(regexall("\"what\", \"[^\"]+\"", google_monitoring_alert_policy.quiet[0].conditions[0].condition_prometheus_query_language[0].query))) == 3
    error_message = "What has happened cannot be told from the incident."
  }
}

run "without_a_load_balancer_the_receiver_refuses" {
  variables {
    entry       = "no_load_balancer"
    domain      = null
    iap_members = ["group:platform@example.com"]
  }
  assert {
    condition     = strcontains(google_logging_metric.refused[0].filter, "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"tidelock-inbox\"")
    error_message = "The receiver's refusals are not counted: ${google_logging_metric.refused[0].filter}"
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.quiet[0].conditions[0].condition_prometheus_query_language[0].query, "user_tidelock_refused{status=\"403\",monitored_resource=\"cloud_run_revision\"}")
    error_message = google_monitoring_alert_policy.quiet[0].conditions[0].condition_prometheus_query_language[0].query
  }
}

run "every_alert_is_counted_in_what_it_costs" {
  assert {
    condition = 8 == length(concat(
      google_monitoring_alert_policy.way_in[*].conditions, google_monitoring_alert_policy.heartbeat[*].conditions, google_monitoring_alert_policy.commit_lag[*].conditions,
      google_monitoring_alert_policy.inbox_unusable[*].conditions, google_monitoring_alert_policy.memory[*].conditions, google_monitoring_alert_policy.restarts[*].conditions,
      google_monitoring_alert_policy.deliveries[*].conditions, google_monitoring_alert_policy.quiet[*].conditions,
    ))
    error_message = "docs/deployment.md counts eight conditions."
  }
}

run "left_out_with_the_others" {
  variables {
    monitoring = { enabled = false }
  }
  assert {
    condition     = length(google_logging_metric.refused) + length(google_logging_metric.takeovers) + length(google_monitoring_alert_policy.quiet) == 0
    error_message = "Something is watched."
  }
}
