# Who may pass Identity-Aware Proxy. What they may do inside is the server's to say (admins).

# On the pages' backend and nothing else of the project.
resource "google_iap_web_backend_service_iam_member" "pages" {
  for_each = local.with_balancer ? toset(var.iap_members) : toset([])

  project             = var.project_id
  web_backend_service = one(google_compute_backend_service.pages[*].name)
  role                = "roles/iap.httpsResourceAccessor"
  member              = each.value
}

# IAP on the service itself has no narrower policy in every provider release that is supported; the condition makes the
# project's grant one for this host alone.
resource "google_project_iam_member" "pages" {
  for_each = local.with_balancer ? toset([]) : toset(var.iap_members)

  project = var.project_id
  role    = "roles/iap.httpsResourceAccessor"
  member  = each.value

  condition {
    title       = "${var.name}-pages"
    description = "Only ${local.service_host}"
    expression  = "request.host == \"${local.service_host}\""
  }
}

# There, IAP calls the service as its agent. `gcloud beta services identity create --service=iap.googleapis.com` makes the agent, if the
# project never used IAP (scripts/deploy does it).
resource "google_cloud_run_v2_service_iam_member" "iap" {
  count = local.with_balancer ? 0 : 1

  project  = var.project_id
  location = var.region
  name     = google_cloud_run_v2_service.leader.name
  role     = "roles/run.invoker"
  member   = "serviceAccount:service-${local.number}@gcp-sa-iap.iam.gserviceaccount.com"
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
