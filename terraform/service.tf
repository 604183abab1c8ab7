# The server. One instance that is always there: it holds the lease, runs terraform and needs its processor between requests. During
# a rollout two overlap; the bucket's lease decides which one leads, and the new one passes its probe as a standby. With
# always_on = false it sleeps when it has nothing to do (wake.tf).

locals {
  # What leader and receiver have in common.
  settings = merge(
    {
      TIDELOCK_ATLANTIS_URL       = local.url
      TIDELOCK_BUCKET             = "gs://${local.bucket_ref}/${var.bucket.prefix}"
      TIDELOCK_LOG_PROJECT        = var.project_id
      TIDELOCK_REPO_ALLOWLIST     = join(",", var.repo_allowlist)
      TIDELOCK_TRUSTED_PROXY_HOPS = local.with_balancer ? "2" : "1" # Cloud Run adds one address, a load balancer before it two
      TIDELOCK_WEBHOOK_ALLOWLIST  = join(",", local.server_allowlist)
    },
    var.github == null ? {} : { TIDELOCK_GH_HOSTNAME = var.github.hostname, TIDELOCK_GH_USER = var.github.user },
    var.github_app == null ? {} : { TIDELOCK_GH_HOSTNAME = var.github_app.hostname },
    var.azuredevops == null ? {} : {
      TIDELOCK_AZUREDEVOPS_HOSTNAME     = var.azuredevops.hostname
      TIDELOCK_AZUREDEVOPS_USER         = var.azuredevops.user
      TIDELOCK_AZUREDEVOPS_WEBHOOK_USER = var.azuredevops.webhook_user
    },
    var.gitlab == null ? {} : {
      TIDELOCK_GITLAB_HOSTNAME = var.gitlab.hostname
      TIDELOCK_GITLAB_USER     = var.gitlab.user
    },
    var.gitea == null ? {} : { TIDELOCK_GITEA_BASE_URL = var.gitea.base_url, TIDELOCK_GITEA_USER = var.gitea.user },
    var.bitbucket == null ? {} : { TIDELOCK_BITBUCKET_BASE_URL = var.bitbucket.base_url, TIDELOCK_BITBUCKET_USER = var.bitbucket.user },
    var.bitbucket_data_center == null ? {} : {
      TIDELOCK_BITBUCKET_DATA_CENTER_BASE_URL = var.bitbucket_data_center.base_url
      TIDELOCK_BITBUCKET_DATA_CENTER_USER     = var.bitbucket_data_center.user
    },
  )

  # The receiver has no key: the App is named to it as the server names it by itself.
  inbox_settings = merge(
    local.settings,
    var.github_app == null ? {} : { TIDELOCK_GH_USER = "app/${var.github_app.id}" },
    { TIDELOCK_EVENTS_ONLY = "true", TIDELOCK_DATA_DIR = "/tmp/tidelock" },
  )

  leader_settings = merge(
    local.settings,
    var.github_app == null ? {} : merge(
      { TIDELOCK_GH_APP_ID = tostring(var.github_app.id) },
      var.github_app.slug == null ? {} : { TIDELOCK_GH_APP_SLUG = var.github_app.slug },
      var.github_app.installation_id == null ? {} : { TIDELOCK_GH_APP_INSTALLATION_ID = tostring(var.github_app.installation_id) },
    ),
    {
      TIDELOCK_DATA_DIR          = local.scratch_path
      TIDELOCK_IAP_AUDIENCE      = local.iap_audience
      TIDELOCK_SCRATCH_QUOTA_MIB = floor(var.scratch.size_gib * 1024)
      TIDELOCK_SYNC_INTERVAL     = var.sync_interval
    },
    length(var.admins) == 0 ? {} : { TIDELOCK_ADMINS = join(",", var.admins) },
    var.repo_config == null ? {} : { TIDELOCK_REPO_CONFIG_JSON = jsonencode(yamldecode(var.repo_config)) },
    local.wake_settings,
    { for key, variable in local.secret_files : "${variable}_FILE" => "/run/secrets/${replace(key, "_", "-")}/${local.file_names[key]}" },
    var.settings,
  )

  scratch_path = "/var/lib/tidelock"
  file_names = {
    gh_token                    = "token", gh_app_key = "key.pem", azuredevops_token = "token", gitlab_token = "token", gitea_token = "token", bitbucket_token = "token",
    bitbucket_data_center_token = "token"
  }
}

resource "google_cloud_run_v2_service" "leader" {
  project              = var.project_id
  name                 = var.name
  location             = var.region
  description          = "Tidelock: plans and applies Terraform from pull requests"
  labels               = local.labels
  launch_stage         = var.scratch.medium == "DISK" ? "BETA" : "GA" # ephemeral disk is a preview
  deletion_protection  = var.deletion_protection
  ingress              = local.with_balancer ? "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" : "INGRESS_TRAFFIC_ALL"
  default_uri_disabled = local.with_balancer && var.always_on # wake.tf

  # Behind a load balancer deliveries come without an identity, IAP guards the pages' backend, and the server checks IAP's
  # assertion itself. Without one, IAP sits on the service and calls it as its service agent.
  invoker_iam_disabled = local.with_balancer
  iap_enabled          = !local.with_balancer

  # The service's number and not the revision's, so that all revisions together have one instance but for an overlap.
  scaling {
    min_instance_count = var.always_on ? 1 : 0
    max_instance_count = 1
  }

  dynamic "binary_authorization" {
    for_each = var.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    service_account                  = google_service_account.leader.email
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"
    timeout                          = "3600s" # live logs, whose readers connect again; /wake takes up to 25 minutes
    max_instance_request_concurrency = var.concurrency
    encryption_key                   = local.kms_key_name
    labels                           = local.labels

    scaling {
      max_instance_count = 1
    }

    containers {
      name  = "tidelock"
      image = local.image
      args  = ["server"]

      ports {
        container_port = 8080
      }

      resources {
        limits = {
          cpu    = tostring(var.cpu)
          memory = "${var.memory_gib}Gi"
        }
        cpu_idle          = !var.always_on # terraform runs between requests, or while /wake is open
        startup_cpu_boost = true
      }

      dynamic "env" {
        for_each = local.leader_settings
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = local.secret_env
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = local.leader_secrets[env.value]
              version = local.secret_versions[env.value]
            }
          }
        }
      }

      dynamic "volume_mounts" {
        for_each = var.scratch.medium == "CONTAINER" ? [] : [true]
        content {
          name       = "scratch"
          mount_path = local.scratch_path
        }
      }

      # The port opens at once, in any role: a new instance has to pass while the old one still leads.
      startup_probe {
        http_get {
          path = "/healthz"
          port = 8080
        }
        period_seconds    = 2
        timeout_seconds   = 2
        failure_threshold = 60
      }

      # Says that the process works, whatever its role and the bucket do: a restart would mend neither. No readiness probe: a standby
      # has to take deliveries. A probe does not wake a sleeping server, but Cloud Run bills its processor time
      # (docs.cloud.google.com/run/docs/configuring/healthchecks): so there are fewer.
      liveness_probe {
        http_get {
          path = "/healthz"
          port = 8080
        }
        period_seconds    = var.always_on ? 15 : 60
        timeout_seconds   = 5
        failure_threshold = 4
      }

      dynamic "volume_mounts" {
        for_each = local.secret_files
        content {
          name       = replace(volume_mounts.key, "_", "-")
          mount_path = "/run/secrets/${replace(volume_mounts.key, "_", "-")}"
        }
      }
    }

    dynamic "volumes" {
      for_each = var.scratch.medium == "CONTAINER" ? [] : [true]
      content {
        name = "scratch"
        empty_dir {
          medium     = var.scratch.medium
          size_limit = "${var.scratch.size_gib}Gi"
        }
      }
    }

    dynamic "volumes" {
      for_each = local.secret_files
      content {
        name = replace(volumes.key, "_", "-")
        secret {
          secret       = local.secret_ids[volumes.key]
          default_mode = 256 # 0400: the server's user and nobody else
          items {
            path    = local.file_names[volumes.key]
            version = "latest" # read anew by the server, which is what a file is for
          }
        }
      }
    }

    dynamic "vpc_access" {
      for_each = var.vpc == null ? [] : [var.vpc]
      content {
        egress = vpc_access.value.egress
        network_interfaces {
          network    = vpc_access.value.network
          subnetwork = vpc_access.value.subnetwork
          tags       = vpc_access.value.tags
        }
      }
    }
  }

  lifecycle {
    precondition {
      condition     = local.wanted_image != ""
      error_message = "This copy of the module is of no release and names no image. Set image, or take the module from a release (docs/install.md); scripts/deploy builds one with Cloud Build."
    }
    precondition {
      condition     = local.wanted_image == "" || can(regex("^([a-z0-9-]+-docker\\.pkg\\.dev|([a-z]+\\.)?gcr\\.io|docker\\.io)/", local.image))
      error_message = "Cloud Run cannot pull ${local.image}. Use an image of Artifact Registry or docker.io, or let registry.kind = \"pull_through\" fetch from registry.upstream."
    }
  }

  # It starts at once, so whatever it reads has to be there.
  depends_on = [
    google_artifact_registry_repository.images,
    google_cloud_tasks_queue_iam_member.leader,
    google_kms_crypto_key_iam_member.agents,
    google_project_service.this,
    google_secret_manager_secret_iam_member.leader,
    google_secret_manager_secret_version.own,
    google_service_account_iam_member.impersonation,
    google_service_account_iam_member.wake,
    google_storage_bucket_iam_member.leader,
  ]
}
