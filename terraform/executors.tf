# Where jobs run that `executor` in repos.yaml sends away: one Cloud Run job per executor, as an execution cannot choose its account. The
# server starts executions with the arguments, the bucket and the time limit; what they may do is their account's business.

locals {
  executor_emails = {
    for name, executor in var.executors : name => coalesce(executor.service_account, try(google_service_account.executor[name].email, null))
  }

  # Runs jobs, with overrides, and sees their state. Both on the job, so that the server cannot run any other.
  executor_roles = merge([
    for name in keys(var.executors) : {
      for role in ["roles/run.jobsExecutorWithOverrides", "roles/run.viewer"] : "${name} ${role}" => { name = name, role = role }
    }
  ]...)
}

resource "google_service_account" "executor" {
  for_each = { for name, executor in var.executors : name => executor if executor.service_account == null }

  project      = var.project_id
  account_id   = "${var.name}-${each.key}"
  display_name = "Tidelock jobs: ${each.key} (${var.name})"
  description  = "Runs the jobs of the executor ${each.key}. Whatever a pull request runs there has this identity."

  depends_on = [google_project_service.this]
}

resource "google_cloud_run_v2_job" "executor" {
  for_each = var.executors

  project             = var.project_id
  name                = "${var.name}-${each.key}"
  location            = var.region
  labels              = local.labels
  deletion_protection = var.deletion_protection

  dynamic "binary_authorization" {
    for_each = var.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    task_count = 1
    labels     = local.labels

    template {
      service_account       = local.executor_emails[each.key]
      execution_environment = "EXECUTION_ENVIRONMENT_GEN2"
      max_retries           = 0 # a repeated task ends at once, and hides why the first one failed
      timeout               = "86400s"
      encryption_key        = local.kms_key_name

      containers {
        name  = "tidelock"
        image = coalesce(each.value.image, local.image)
        args  = ["run-job"]

        resources {
          limits = {
            cpu    = tostring(each.value.cpu)
            memory = "${each.value.memory_gib}Gi"
          }
        }

        dynamic "env" {
          for_each = each.value.env
          content {
            name  = env.key
            value = env.value
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
  }

  depends_on = [
    google_artifact_registry_repository.images,
    google_kms_crypto_key_iam_member.agents,
    google_project_service.this,
  ]
}

resource "google_cloud_run_v2_job_iam_member" "executor" {
  for_each = local.executor_roles

  project  = var.project_id
  location = var.region
  name     = google_cloud_run_v2_job.executor[each.value.name].name
  role     = each.value.role
  member   = google_service_account.leader.member
}
