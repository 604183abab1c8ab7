# Three things are watched from three sides: the way in (load balancer, certificate, IAP) from outside, the leader by its own heartbeat
# line, and the instance by Cloud Run's metrics. An uptime check cannot see the server: IAP answers it.

locals {
  watched  = var.monitoring.enabled
  channels = concat(var.monitoring.channels, values(google_monitoring_notification_channel.email)[*].name)

  # How PromQL names logging.googleapis.com/user/NAME: everything but letters, digits and the first slash becomes an underscore.
  heartbeat_metric  = "logging_googleapis_com:user_${replace(var.name, "-", "_")}_heartbeat"
  commit_lag_metric = "logging_googleapis_com:user_${replace(var.name, "-", "_")}_commit_lag"
  unusable_metric   = "logging_googleapis_com:user_${replace(var.name, "-", "_")}_inbox_unusable"

  logs_of = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"${var.name}\""
}

resource "google_monitoring_notification_channel" "email" {
  for_each = local.watched ? toset(var.monitoring.emails) : toset([])

  project      = var.project_id
  display_name = "Tidelock (${var.name}): ${each.value}"
  type         = "email"
  labels       = { email_address = each.value }

  # Alerts stop naming it before it goes: a channel in use cannot be deleted.
  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_project_service.this]
}

# The way in. Uptime checks follow redirects and would judge Google's sign-in page and its certificate. Asked like this, IAP says 401
# where it would redirect a browser; 302 is taken too, should a checker ever stop at it. 200 is a fault: the pages would be open.
resource "google_monitoring_uptime_check_config" "way_in" {
  count = local.watched && var.entry != "existing_load_balancer" ? 1 : 0

  project      = var.project_id
  display_name = "Tidelock (${var.name}): way in"
  period       = "300s"
  timeout      = "10s"
  user_labels  = local.labels

  http_check {
    path         = "${var.base_path}/"
    port         = 443
    use_ssl      = true
    validate_ssl = true
    headers      = { "X-Requested-With" = "XMLHttpRequest" }

    accepted_response_status_codes {
      status_value = 401
    }
    accepted_response_status_codes {
      status_value = 302
    }

    # Checkers come from anywhere: where Cloud Armor admits known networks only, its refusal shows that the way in works.
    dynamic "accepted_response_status_codes" {
      for_each = length(var.pages_sources) == 0 ? [] : [403]
      content {
        status_value = accepted_response_status_codes.value
      }
    }
  }

  monitored_resource {
    type = "uptime_url"
    labels = {
      project_id = var.project_id
      host       = local.host
    }
  }

  # For another domain: the alert is about the new check before the old one goes, which an alert in use would prevent.
  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_project_service.this]
}

resource "google_monitoring_alert_policy" "way_in" {
  count = local.watched && var.entry != "existing_load_balancer" ? 1 : 0

  project               = var.project_id
  display_name          = "Tidelock (${var.name}): the way in is broken"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = local.channels
  user_labels           = local.labels

  conditions {
    display_name = "Neither IAP's answer nor a valid certificate"
    condition_threshold {
      filter          = "metric.type=\"monitoring.googleapis.com/uptime_check/check_passed\" AND resource.type=\"uptime_url\" AND metric.labels.check_id=\"${one(google_monitoring_uptime_check_config.way_in[*].uptime_check_id)}\""
      comparison      = "COMPARISON_GT"
      threshold_value = 1
      duration        = "300s"
      aggregations {
        alignment_period     = "600s"
        per_series_aligner   = "ALIGN_NEXT_OLDER"
        cross_series_reducer = "REDUCE_COUNT_FALSE"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "${local.url} does not answer as IAP does. Look at the certificate's state, the domain's DNS records and the load balancer. An answer of 200 means that the pages are open: check that IAP is on."
  }
}

# The leader writes one line a minute, others one when their role changes: message "heartbeat", with role, epoch and how long a change
# waits to be in the bucket (src/app/heartbeat.rs; a test holds both together).
resource "google_logging_metric" "heartbeat" {
  count = local.watched ? 1 : 0

  project     = var.project_id
  name        = "${var.name}-heartbeat"
  description = "A line a minute from the leader"
  filter      = "${local.logs_of} AND jsonPayload.message=\"heartbeat\" AND jsonPayload.role=\"leading\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }

  depends_on = [google_project_service.this]
}

resource "google_monitoring_alert_policy" "heartbeat" {
  count = local.watched ? 1 : 0

  project               = var.project_id
  display_name          = "Tidelock (${var.name}): nobody leads"
  combiner              = "OR"
  severity              = "CRITICAL"
  notification_channels = local.channels
  user_labels           = local.labels

  # A counter of log lines may stop, or go on with zeros: both are less than one. In PromQL and without validation, because a metric
  # that was made a moment ago is not known to alerts for up to ten minutes. A sleeping server wakes and leads every hour.
  conditions {
    display_name = "Less than one heartbeat in ${local.sleeps ? "three hours" : "ten minutes"}"
    condition_prometheus_query_language {
      query                     = "(sum(increase(${local.heartbeat_metric}{monitored_resource=\"cloud_run_revision\"}[${local.sleeps ? "3h" : "10m"}])) or vector(0)) < 1"
      duration                  = "60s"
      evaluation_interval       = "60s"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "No instance leads: deliveries are stored, but nothing is planned. Look at ${local.url}/status for the role and at the log for why it does not get the lease. `tidelock doctor` names the fault.${local.sleeps ? " The job ${var.name}-wake of Cloud Scheduler should have woken it: its log has the answers of /wake." : ""}"
  }
}

# How long the last change took to be in the bucket, or the present one waits already. What is not there is not shown either, so this is
# what people wait for; without changes it is 0.
resource "google_logging_metric" "commit_lag" {
  count = local.watched ? 1 : 0

  project         = var.project_id
  name            = "${var.name}-commit-lag"
  description     = "How long a change waits to be in the bucket, in milliseconds, from the heartbeat"
  filter          = "${local.logs_of} AND jsonPayload.message=\"heartbeat\" AND jsonPayload.commit_lag_ms>=0"
  value_extractor = "EXTRACT(jsonPayload.commit_lag_ms)"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "DISTRIBUTION"
    unit        = "ms"
  }

  bucket_options {
    exponential_buckets {
      num_finite_buckets = 24
      growth_factor      = 2
      scale              = 1
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_monitoring_alert_policy" "commit_lag" {
  count = local.watched ? 1 : 0

  project               = var.project_id
  display_name          = "Tidelock (${var.name}): the bucket is slow or refuses"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = local.channels
  user_labels           = local.labels

  conditions {
    display_name = "A change has waited for more than a minute"
    condition_prometheus_query_language {
      query                     = "histogram_quantile(0.99, sum by (le) (increase(${local.commit_lag_metric}_bucket{monitored_resource=\"cloud_run_revision\"}[5m]))) > 60000"
      duration                  = "300s"
      evaluation_interval       = "60s"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Changes do not reach gs://${local.bucket_name}. Check that ${google_service_account.leader.email} still has roles/storage.objectUser there, and that no retention policy and no disabled key is on it."
  }
}

# Stored deliveries that the leader cannot verify, or read: each was answered with 2xx, so the host does not show it as failed.
resource "google_logging_metric" "inbox_unusable" {
  count = local.watched ? 1 : 0

  project     = var.project_id
  name        = "${var.name}-inbox-unusable"
  description = "A line a minute from a leader that cannot use something in its inbox"
  filter      = "${local.logs_of} AND jsonPayload.message=\"heartbeat\" AND jsonPayload.role=\"leading\" AND jsonPayload.inbox_unusable>=1"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }

  depends_on = [google_project_service.this]
}

resource "google_monitoring_alert_policy" "inbox_unusable" {
  count = local.watched ? 1 : 0

  project               = var.project_id
  display_name          = "Tidelock (${var.name}): stored deliveries cannot be verified"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = local.channels
  user_labels           = local.labels

  conditions {
    display_name = "The leader has counted some${local.sleeps ? "" : " for five minutes"}"
    condition_prometheus_query_language {
      query                     = "sum(increase(${local.unusable_metric}{monitored_resource=\"cloud_run_revision\"}[${local.sleeps ? "3h])) >= 1" : "10m])) >= 5"}"
      duration                  = "60s"
      evaluation_interval       = "60s"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Deliveries were stored that the leader does not know the webhook secret of; they stay for seven days. Give the service the secret that they are signed with, as secret_versions.gh_webhook_secret or gh_previous_webhook_secret: it takes them up when it starts. Its log says \"cannot be verified\" and which secret it is."
  }
}

resource "google_monitoring_alert_policy" "memory" {
  count = local.watched ? 1 : 0

  project               = var.project_id
  display_name          = "Tidelock (${var.name}): memory is nearly full"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = local.channels
  user_labels           = local.labels

  # An instance whose memory is full is killed without a signal, and scratch space may be memory.
  conditions {
    display_name = "Memory above 90 %"
    condition_threshold {
      filter          = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"${var.name}\" AND metric.type=\"run.googleapis.com/container/memory/utilizations\""
      comparison      = "COMPARISON_GT"
      threshold_value = 0.9
      duration        = "300s"
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_PERCENTILE_99"
        cross_series_reducer = "REDUCE_MAX"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "More memory (memory_gib), less scratch space or scratch.medium = \"DISK\" mend it; fewer plans at the same time (TIDELOCK_PARALLEL_POOL_SIZE) help meanwhile."
  }

  depends_on = [google_project_service.this]
}

# A policy of its own: one with PromQL takes no other condition.
resource "google_monitoring_alert_policy" "restarts" {
  count = local.watched ? 1 : 0

  project               = var.project_id
  display_name          = "Tidelock (${var.name}): the instance keeps starting"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = local.channels
  user_labels           = local.labels

  # A rollout starts one instance, a move by Google another. A server that sleeps also starts after Cloud Run has ended its idle
  # instance. If it fails at each start, repeated tasks start it about eleven times in the first half an hour.
  conditions {
    display_name = "More than ${local.sleeps ? "eight" : "four"} starts in half an hour"
    condition_prometheus_query_language {
      query               = "sum(increase(run_googleapis_com:container_startup_latencies_count{monitored_resource=\"cloud_run_revision\",service_name=\"${var.name}\"}[30m])) > ${local.sleeps ? 8 : 4}"
      duration            = "0s"
      evaluation_interval = "60s"

      disable_metric_validation = true # no instance has started yet when this is made
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Look at the log of Cloud Run's service ${var.name} for the last line before each start: an exit code, `Memory limit`, or a refused setting."
  }

  depends_on = [google_project_service.this]
}

# A delivery that is answered with an error is not sent again by itself.
resource "google_monitoring_alert_policy" "deliveries" {
  count = local.watched ? 1 : 0

  project               = var.project_id
  display_name          = "Tidelock (${var.name}): deliveries fail"
  combiner              = "OR"
  severity              = "ERROR"
  notification_channels = local.channels
  user_labels           = local.labels

  conditions {
    display_name = "/events answered 5xx"
    condition_threshold {
      filter = (
        local.with_balancer
        ? "resource.type=\"https_lb_rule\" AND resource.labels.backend_target_name=\"${var.name}-events\" AND metric.type=\"loadbalancing.googleapis.com/https/request_count\" AND metric.labels.response_code_class=\"500\""
        : "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"${var.name}-inbox\" AND metric.type=\"run.googleapis.com/request_count\" AND metric.labels.response_code_class=\"5xx\""
      )
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"
      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Deliveries to ${local.events_url} were not stored. The host's page of recent deliveries can send them again; the server looks for missed ones itself every few minutes."
  }

  depends_on = [google_project_service.this]
}

# What hurts quietly. A host that sends from a new address, or more than the limit allows, is refused before the server hears of it, and its
# page of recent deliveries is the only place that shows it.

locals {
  # Two names for one place: logs of a load balancer are of http_load_balancer, metrics made of them of l7_lb_rule.
  refusing = local.with_balancer ? ["l7_lb_rule", "http_load_balancer"] : ["cloud_run_revision"]

  refused_metric   = "logging_googleapis_com:user_${replace(var.name, "-", "_")}_refused"
  takeovers_metric = "logging_googleapis_com:user_${replace(var.name, "-", "_")}_takeovers"

  # How many of a status in an hour.
  refused_in_an_hour = { for status in ["403", "429"] : status => join(" or ", [
    for resource in local.refusing : "sum(increase(${local.refused_metric}{status=\"${status}\",monitored_resource=\"${resource}\"}[1h]))"
  ]) }

  # A server that sleeps begins to lead whenever it wakes.
  quiet = merge(
    {
      "deliveries are refused: the host sends from an address that is not allowed" = "(${local.refused_in_an_hour["403"]}) >= 3"
      "deliveries are refused: more than the rate limit in a minute"               = "(${local.refused_in_an_hour["429"]}) >= 1"
    },
    local.sleeps ? {} : {
      "the lease changes hands too often" = "sum(increase(${local.takeovers_metric}{monitored_resource=\"cloud_run_revision\"}[1h])) > 5"
    },
  )
}

# 403 counts where the sender calls itself a host: a scanner that finds /events is refused too. 429 counts in any case, because the limit is
# that of allowed addresses. Cloud Armor's refusals and the server's own have the same statuses.
resource "google_logging_metric" "refused" {
  count = local.watched ? 1 : 0

  project     = var.project_id
  name        = "${var.name}-refused"
  description = "Deliveries that were refused, by status"
  filter = join(" AND ", [
    local.with_balancer
    ? "resource.type=\"http_load_balancer\" AND resource.labels.backend_service_name=\"${var.name}-events\""
    : "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"${var.name}-inbox\"",
    "(httpRequest.status=429 OR (httpRequest.status=403 AND httpRequest.userAgent=~\"^(GitHub-Hookshot/|VSServices/|GitLab/|Bitbucket-Webhooks/)\"))",
  ])
  label_extractors = { status = "EXTRACT(httpRequest.status)" }

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"

    labels {
      key        = "status"
      value_type = "STRING"
    }
  }

  depends_on = [google_project_service.this]
}

# A server says so once when it begins to lead.
resource "google_logging_metric" "takeovers" {
  count = local.watched && !local.sleeps ? 1 : 0

  project     = var.project_id
  name        = "${var.name}-takeovers"
  description = "A line from each server that begins to lead"
  filter      = "${local.logs_of} AND jsonPayload.message=\"ready\" AND jsonPayload.role=\"leading\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }

  depends_on = [google_project_service.this]
}

# One condition for all of them, because each condition has a price. The label `what` of the incident tells which one it is.
resource "google_monitoring_alert_policy" "quiet" {
  count = local.watched ? 1 : 0

  project               = var.project_id
  display_name          = "Tidelock (${var.name}): refused deliveries, or a lease that does not stay"
  combiner              = "OR"
  severity              = "WARNING"
  notification_channels = local.channels
  user_labels           = local.labels

  conditions {
    display_name = "What: see the label"
    condition_prometheus_query_language {
      query                     = join(" or ", [for what, query in local.quiet : "label_replace(${query}, \"what\", \"${what}\", \"\", \"\")"])
      duration                  = "0s"
      evaluation_interval       = "300s"
      disable_metric_validation = true
    }
  }

  documentation {
    mime_type = "text/markdown"
    content = join("\n", concat(
      [
        "The incident's label `what` tells which of these it is.",
        "",
        "* **An address that is not allowed**: a VCS host has begun to send from a new range. The load balancer's log has the address (`httpRequest.remoteIp`, status 403). Compare it with the host's published list, and add it to `webhook_sources`, or take a newer module. Refused deliveries are not sent again by themselves: the server finds what it missed within minutes, and the host's page of recent deliveries can send them again.",
        "* **More than the rate limit**: one address sent more than `webhook_rate_limit` in a minute. Raise it, if the deliveries are real.",
      ],
      local.sleeps ? [] : ["* **The lease changes hands**: more than five servers began to lead within an hour. Two deployments on one bucket, an instance that keeps starting, or a bucket that answers slowly: ${local.url}/status and the log say who leads, and why the one before stopped."],
      [""],
    ))
  }

  depends_on = [google_project_service.this]
}
