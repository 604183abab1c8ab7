# Who the server is, and what it may do: its own bucket, its own secrets, and what impersonation adds. No right is on the project.

locals {
  service_agents = merge(
    {
      iap              = "service-${local.number}@gcp-sa-iap.iam.gserviceaccount.com"
      run              = "service-${local.number}@serverless-robot-prod.iam.gserviceaccount.com"
      artifactregistry = "service-${local.number}@gcp-sa-artifactregistry.iam.gserviceaccount.com"
    },
    var.service_agents,
  )
}

resource "google_service_account" "leader" {
  project      = var.project_id
  account_id   = "${var.name}-server"
  display_name = "Tidelock (${var.name})"
  description  = "Runs plans and applies. Whatever a pull request runs has this identity too."

  depends_on = [google_project_service.this]
}

# The receiver of the variant without a load balancer is public, so it has next to no rights.
resource "google_service_account" "inbox" {
  count = local.with_balancer ? 0 : 1

  project      = var.project_id
  account_id   = "${var.name}-inbox"
  display_name = "Tidelock deliveries (${var.name})"
  description  = "Stores deliveries in the bucket's inbox, and nothing else."

  depends_on = [google_project_service.this]
}

resource "google_service_account_iam_member" "impersonation" {
  for_each = var.impersonated_service_accounts # names that are known while planning; the accounts may be made in the same run

  service_account_id = "projects/-/serviceAccounts/${each.value}"
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = google_service_account.leader.member
}
