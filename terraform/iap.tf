# Who may pass Identity-Aware Proxy. What they may do inside is the server's to say (admins).

# On the pages' backend and nothing else of the project.
resource "google_iap_web_backend_service_iam_member" "pages" {
  for_each = local.with_balancer ? toset(var.iap_members) : toset([])

  project             = var.project_id
  web_backend_service = one(google_compute_backend_service.pages[*].name)
  role                = "roles/iap.httpsResourceAccessor"
  member              = each.value
}

# On the one service. The API knows the project by its number only.
resource "google_iap_web_cloud_run_service_iam_member" "pages" {
  for_each = local.with_balancer ? toset([]) : toset(var.iap_members)

  project                = local.number
  location               = var.region
  cloud_run_service_name = google_cloud_run_v2_service.leader.name
  role                   = "roles/iap.httpsResourceAccessor"
  member                 = each.value
}

# There, IAP calls the service as its agent. `gcloud beta services identity create --service=iap.googleapis.com` makes the agent, if the
# project never used IAP (scripts/deploy and modules/service-agents do it).
resource "google_cloud_run_v2_service_iam_member" "iap" {
  count = local.with_balancer ? 0 : 1

  project  = var.project_id
  location = var.region
  name     = google_cloud_run_v2_service.leader.name
  role     = "roles/run.invoker"
  member   = "serviceAccount:${local.service_agents.iap}"
}

# Google's own client lets in members of the project's organization only: others, and projects without one, bring a client.
resource "google_iap_settings" "service" {
  count = !local.with_balancer && nonsensitive(var.iap_oauth_client != null) ? 1 : 0

  name = "projects/${local.number}/iap_web/cloud_run-${var.region}/services/${google_cloud_run_v2_service.leader.name}"

  access_settings {
    oauth_settings {
      client_id     = var.iap_oauth_client.client_id
      client_secret = var.iap_oauth_client.client_secret
    }
  }
}

resource "google_iap_settings" "pages" {
  count = local.with_balancer && length(var.iap_programmatic_clients) > 0 ? 1 : 0

  name = "projects/${local.number}/iap_web/compute/services/${one(google_compute_backend_service.pages[*].generated_id)}"

  access_settings {
    oauth_settings {
      programmatic_clients = var.iap_programmatic_clients
    }
  }
}
