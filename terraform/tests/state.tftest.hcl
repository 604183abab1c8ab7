# What is kept, who may touch it, and that no secret is in the state.

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
  mock_resource "google_certificate_manager_dns_authorization" {
    defaults = { dns_resource_record = [{ name = "_acme-challenge.tidelock.example.com.", type = "CNAME", data = "x.authorize.certificatemanager.goog." }] }
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

run "the_bucket_is_closed_and_versioned" {
  assert {
    condition     = google_storage_bucket.state[0].uniform_bucket_level_access && google_storage_bucket.state[0].public_access_prevention == "enforced"
    error_message = "The bucket can be opened."
  }
  assert {
    condition     = google_storage_bucket.state[0].versioning[0].enabled
    error_message = "Nothing can be taken back."
  }
  assert {
    condition     = alltrue([for r in google_storage_bucket.state[0].lifecycle_rule : r.condition[0].with_state == "ARCHIVED"])
    error_message = "A lifecycle rule touches live objects: that is the server's job alone."
  }
  assert {
    condition     = length(google_storage_bucket.state[0].retention_policy) == 0
    error_message = "A retention policy would stop the lease."
  }
  assert {
    condition     = google_storage_bucket_iam_member.leader.role == "roles/storage.objectUser"
    error_message = "The server may do more than work with objects."
  }
  assert {
    condition     = output.bucket == "gs://acme-infra-tidelock-state/tidelock"
    error_message = "The bucket is ${output.bucket}"
  }
}

run "jobs_reach_their_own_folder_only" {
  variables {
    executors = {
      plans = { service_account = "plans@acme-infra.iam.gserviceaccount.com" }
      prod  = { service_account = "prod@acme-apply.iam.gserviceaccount.com" }
    }
  }
  assert {
    condition = { for key, m in google_storage_bucket_iam_member.executors : key => "${m.role} ${m.member} ${one(m.condition).expression}" } == {
      "plans/objectCreator" = "roles/storage.objectCreator serviceAccount:plans@acme-infra.iam.gserviceaccount.com resource.name.startsWith(\"projects/_/buckets/acme-infra-tidelock-state/objects/tidelock/jobs/plans/\")"
      "plans/objectViewer"  = "roles/storage.objectViewer serviceAccount:plans@acme-infra.iam.gserviceaccount.com resource.name.startsWith(\"projects/_/buckets/acme-infra-tidelock-state/objects/tidelock/jobs/plans/\")"
      "prod/objectCreator"  = "roles/storage.objectCreator serviceAccount:prod@acme-apply.iam.gserviceaccount.com resource.name.startsWith(\"projects/_/buckets/acme-infra-tidelock-state/objects/tidelock/jobs/prod/\")"
      "prod/objectViewer"   = "roles/storage.objectViewer serviceAccount:prod@acme-apply.iam.gserviceaccount.com resource.name.startsWith(\"projects/_/buckets/acme-infra-tidelock-state/objects/tidelock/jobs/prod/\")"
    }
    error_message = "Jobs have other rights in the bucket than to create and read what is theirs."
  }
}

run "executors_share_no_account" {
  command = plan
  variables {
    executors = {
      plans = { service_account = "jobs@acme-infra.iam.gserviceaccount.com" }
      prod  = { service_account = "jobs@acme-infra.iam.gserviceaccount.com" }
    }
  }
  expect_failures = [var.executors]
}

run "an_executor_has_not_the_servers_account" {
  command = plan
  variables {
    executors = { plans = { service_account = "tidelock-server@acme-infra.iam.gserviceaccount.com" } }
  }
  expect_failures = [var.executors]
}

run "an_executor_has_a_name_of_its_own" {
  command = plan
  variables {
    executors = { local = { service_account = "plans@acme-infra.iam.gserviceaccount.com" } }
  }
  expect_failures = [var.executors]
}

run "one_instance_that_is_always_there" {
  assert {
    condition     = google_cloud_run_v2_service.leader.scaling[0].min_instance_count == 1 && google_cloud_run_v2_service.leader.scaling[0].max_instance_count == 1
    error_message = "The service scales."
  }
  assert {
    condition     = google_cloud_run_v2_service.leader.template[0].containers[0].resources[0].cpu_idle == false
    error_message = "There is no processor between requests."
  }
  assert {
    condition     = google_cloud_run_v2_service.leader.template[0].containers[0].startup_probe[0].period_seconds * google_cloud_run_v2_service.leader.template[0].containers[0].startup_probe[0].failure_threshold <= 240
    error_message = "Cloud Run refuses a startup probe of more than four minutes."
  }
  assert {
    condition     = length(google_cloud_run_v2_service.leader.template[0].containers[0].readiness_probe) == 0
    error_message = "A readiness probe would keep deliveries from a standby."
  }
}

run "secrets_are_named_and_not_kept" {
  assert {
    condition     = alltrue([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : try(e.value, null) == null || length(e.value_source) == 0])
    error_message = "A variable has both a value and a secret."
  }
  assert {
    condition     = toset([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e.name if length(e.value_source) == 1]) == toset(["TIDELOCK_GH_TOKEN", "TIDELOCK_GH_WEBHOOK_SECRET"])
    error_message = "Not exactly the two secrets come from Secret Manager."
  }
  assert {
    condition     = length(google_secret_manager_secret.own) == 0
    error_message = "Secrets are made though nobody asked."
  }
  assert {
    condition     = toset(flatten([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : [for s in e.value_source : s.secret_key_ref[0].version]])) == toset(["7"])
    error_message = "A secret is not pinned to the number of its newest version."
  }
  assert {
    condition     = alltrue([for d in data.google_secret_manager_secret_version.newest : !d.fetch_secret_data])
    error_message = "A secret's value is read, and would be in the state."
  }
}

run "a_first_start_that_fails_can_be_repeated" {
  assert {
    condition     = !google_cloud_run_v2_service.leader.deletion_protection
    error_message = "The replacement of a service that never started would be refused."
  }
}

run "the_server_can_write_where_it_works" {
  assert {
    condition     = length(google_cloud_run_v2_service.leader.template[0].volumes) == 0 && length(google_cloud_run_v2_service.leader.template[0].containers[0].volume_mounts) == 0
    error_message = "A volume in memory belongs to root, and the image does not run as root."
  }
}

run "a_disk_is_a_volume_of_a_preview" {
  variables {
    scratch = { medium = "DISK", size_gib = 9 }
  }
  assert {
    condition     = google_cloud_run_v2_service.leader.template[0].volumes[0].empty_dir[0].medium == "DISK" && google_cloud_run_v2_service.leader.launch_stage == "BETA"
    error_message = "The disk is not asked for as the preview that it is."
  }
  assert {
    condition     = google_cloud_run_v2_service.leader.template[0].containers[0].volume_mounts[0].mount_path == "/var/lib/tidelock"
    error_message = "The server does not work on the disk."
  }
}

run "alerts_need_no_metric_that_exists" {
  assert {
    condition     = alltrue([for p in [google_monitoring_alert_policy.heartbeat[0], google_monitoring_alert_policy.commit_lag[0], google_monitoring_alert_policy.inbox_unusable[0], google_monitoring_alert_policy.restarts[0]] : p.conditions[0].condition_prometheus_query_language[0].disable_metric_validation])
    error_message = "An alert on a metric of ours would be refused for ten minutes."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.heartbeat[0].conditions[0].condition_prometheus_query_language[0].query, "logging_googleapis_com:user_tidelock_heartbeat{") && strcontains(google_monitoring_alert_policy.commit_lag[0].conditions[0].condition_prometheus_query_language[0].query, "logging_googleapis_com:user_tidelock_commit_lag_bucket{") && strcontains(google_monitoring_alert_policy.inbox_unusable[0].conditions[0].condition_prometheus_query_language[0].query, "logging_googleapis_com:user_tidelock_inbox_unusable{")
    error_message = "The names are not PromQL's for ${google_logging_metric.heartbeat[0].name} and ${google_logging_metric.commit_lag[0].name}."
  }
}

run "the_webhook_secret_before_the_present_one_is_taken_where_it_is_named" {
  variables {
    secret_versions = { gh_token = "3", gh_webhook_secret = "2", gh_previous_webhook_secret = "1" }
  }
  assert {
    condition     = { for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e.name => e.value_source[0].secret_key_ref[0].version if length(e.value_source) == 1 } == { TIDELOCK_GH_TOKEN = "3", TIDELOCK_GH_WEBHOOK_SECRET = "2", TIDELOCK_GH_PREVIOUS_WEBHOOK_SECRET = "1" }
    error_message = "The server does not get both versions."
  }
  assert {
    condition     = length(google_secret_manager_secret_iam_member.leader) == 2
    error_message = "The older version's grant would take the secret's right with it when it goes."
  }
}

run "values_go_through_write_only_arguments" {
  variables {
    create_secrets        = true
    secret_values_version = 1
  }
  assert {
    condition     = alltrue([for v in google_secret_manager_secret_version.own : v.secret_data_wo == null && v.secret_data == null])
    error_message = "A secret's value is in the state."
  }
  assert {
    condition     = length(google_secret_manager_secret_version.own) == 2
    error_message = "Not both secrets get a value."
  }
}

run "the_token_can_be_a_file" {
  variables {
    token_as_file = true
  }
  assert {
    condition     = one([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e.value if e.name == "TIDELOCK_GH_TOKEN_FILE"]) == "/run/secrets/gh-token/token"
    error_message = "The server is not told where the token is."
  }
  assert {
    condition     = length([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e if e.name == "TIDELOCK_GH_TOKEN"]) == 0
    error_message = "The token is a file and a variable."
  }
}

run "an_upstream_image_is_pulled_through" {
  assert {
    condition     = output.image == "europe-west1-docker.pkg.dev/acme-infra/tidelock-images/example/tidelock:0.1.0"
    error_message = "The image is ${output.image}"
  }
}

run "a_key_of_ones_own_is_used_everywhere" {
  variables {
    kms_key = { name = "projects/acme-infra/locations/europe-west1/keyRings/tidelock/cryptoKeys/tidelock" }
  }
  assert {
    condition     = google_storage_bucket.state[0].encryption[0].default_kms_key_name == var.kms_key.name && google_cloud_run_v2_service.leader.template[0].encryption_key == var.kms_key.name && google_artifact_registry_repository.images[0].kms_key_name == var.kms_key.name
    error_message = "Something is encrypted with another key."
  }
  assert {
    condition     = length(google_kms_crypto_key_iam_member.agents) == 3
    error_message = "A service agent may not use the key."
  }
}

run "a_dns_authorized_certificate_needs_no_waiting" {
  variables {
    certificate = { kind = "dns_authorized" }
    dns_zone    = { name = "example-com" }
    ipv6        = true
  }
  assert {
    condition     = startswith(google_compute_target_https_proxy.https[0].certificate_map, "//certificatemanager.googleapis.com/")
    error_message = "The proxy does not use the map."
  }
  assert {
    condition     = google_dns_record_set.certificate[0].type == "CNAME" && google_dns_record_set.address["IPV6"].type == "AAAA"
    error_message = "Records are missing."
  }
}

run "a_certificate_of_ones_own" {
  variables {
    certificate = { kind = "existing", ssl_certificates = ["projects/acme-infra/global/sslCertificates/wild"] }
  }
  assert {
    condition     = google_compute_target_https_proxy.https[0].ssl_certificates == tolist(["projects/acme-infra/global/sslCertificates/wild"])
    error_message = "Another certificate is used."
  }
}

run "alerts_can_be_left_out" {
  variables {
    monitoring = { enabled = false, emails = ["a@example.com"] }
  }
  assert {
    condition     = length(google_monitoring_alert_policy.heartbeat) + length(google_monitoring_alert_policy.memory) + length(google_monitoring_alert_policy.restarts) + length(google_monitoring_uptime_check_config.way_in) + length(google_monitoring_notification_channel.email) == 0
    error_message = "Something is watched."
  }
}

run "an_open_page_is_an_alarm" {
  assert {
    condition     = !contains([for c in google_monitoring_uptime_check_config.way_in[0].http_check[0].accepted_response_status_codes : c.status_value], 200)
    error_message = "The uptime check is content with open pages."
  }
}

run "whoever_guards_nothing_is_refused" {
  command = plan
  variables {
    repo_allowlist  = ["github.com/*"]
    iap_members     = ["allUsers"]
    webhook_sources = ["0.0.0.0/0"]
  }
  expect_failures = [var.repo_allowlist, var.iap_members, var.webhook_sources]
}

run "what_does_not_fit_is_refused" {
  command = plan
  variables {
    domain      = null
    cpu         = 1
    memory_gib  = 8
    settings    = { TIDELOCK_API_SECRET = "hush" }
    certificate = { kind = "existing" }
    bucket      = { soft_delete_days = 3 }
  }
  expect_failures = [var.domain, var.memory_gib, var.settings, var.certificate, var.bucket]
}

run "scratch_may_not_fill_the_memory" {
  command = plan
  variables {
    scratch = { medium = "MEMORY", size_gib = 4 }
  }
  expect_failures = [var.scratch]
}

run "an_image_that_cloud_run_cannot_pull_is_refused" {
  command = plan
  variables {
    image    = "quay.io/example/tidelock:1"
    registry = { kind = "none" }
  }
  expect_failures = [google_cloud_run_v2_service.leader]
}

run "executors_have_their_own_accounts" {
  variables {
    executors = {
      plans = { env = { TF_CLI_ARGS_plan = "-lock=false" } }
      prod  = { service_account = "deployer@acme-infra.iam.gserviceaccount.com", cpu = 2, memory_gib = 8 }
    }
  }
  assert {
    condition     = keys(google_service_account.executor) == ["plans"] && google_service_account.executor["plans"].account_id == "tidelock-plans"
    error_message = "An account is made that is given, or none that is not."
  }
  assert {
    condition     = google_cloud_run_v2_job.executor["prod"].template[0].template[0].service_account == "deployer@acme-infra.iam.gserviceaccount.com"
    error_message = "Jobs run with another account than the one that is given."
  }
  assert {
    condition     = alltrue([for job in google_cloud_run_v2_job.executor : job.template[0].template[0].max_retries == 0 && job.template[0].template[0].timeout == "86400s" && job.template[0].task_count == 1])
    error_message = "Cloud Run repeats jobs, or kills them early."
  }
  assert {
    condition     = toset([for member in google_cloud_run_v2_job_iam_member.executor : "${member.name} ${member.role}"]) == toset(["tidelock-plans roles/run.jobsExecutorWithOverrides", "tidelock-plans roles/run.viewer", "tidelock-prod roles/run.jobsExecutorWithOverrides", "tidelock-prod roles/run.viewer"])
    error_message = "The server's rights are not those on the two jobs."
  }
  assert {
    condition     = output.executors["plans"].job == "projects/acme-infra/locations/europe-west1/jobs/tidelock-plans"
    error_message = "The job is named ${output.executors["plans"].job}."
  }
}

run "no_executor_has_the_servers_account" {
  command = plan
  variables {
    executors = { server = {} }
  }
  expect_failures = [var.executors]
}
