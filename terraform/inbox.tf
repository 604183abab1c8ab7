# Without a load balancer: IAP on a service covers all its paths, so deliveries need a service of their own. It is public, serves
# /events only, checks signature and address, stores the delivery in the bucket, and then answers. It never leads, has no token, and
# costs nothing while nothing arrives.

resource "google_cloud_run_v2_service" "inbox" {
  count = local.with_balancer ? 0 : 1

  project              = var.project_id
  name                 = "${var.name}-inbox"
  location             = var.region
  description          = "Takes deliveries for ${var.name}"
  labels               = local.labels
  deletion_protection  = var.deletion_protection
  ingress              = "INGRESS_TRAFFIC_ALL"
  invoker_iam_disabled = true

  scaling {
    min_instance_count = 0
    max_instance_count = 3
  }

  dynamic "binary_authorization" {
    for_each = var.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    service_account                  = one(google_service_account.inbox[*].email)
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"
    timeout                          = "30s"
    max_instance_request_concurrency = 80
    encryption_key                   = local.kms_key_name
    labels                           = local.labels

    containers {
      name  = "tidelock"
      image = local.image
      args  = ["server"]

      ports {
        container_port = 8080
      }

      resources {
        limits = {
          cpu    = "1"
          memory = "512Mi"
        }
        cpu_idle          = true # a delivery is stored before it is answered; nothing runs in between
        startup_cpu_boost = true
      }

      dynamic "env" {
        for_each = local.inbox_settings
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = local.webhook_env
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

      startup_probe {
        http_get {
          path = "/healthz"
          port = 8080
        }
        period_seconds    = 1
        timeout_seconds   = 1
        failure_threshold = 60
      }

      liveness_probe {
        http_get {
          path = "/healthz"
          port = 8080
        }
        period_seconds    = 30
        timeout_seconds   = 5
        failure_threshold = 3
      }
    }
  }

  depends_on = [
    google_artifact_registry_repository.images,
    google_kms_crypto_key_iam_member.agents,
    google_project_service.this,
    google_secret_manager_secret_iam_member.inbox,
    google_secret_manager_secret_version.own,
    google_storage_bucket_iam_member.inbox,
  ]
}
