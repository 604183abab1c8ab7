# Tidelock on Cloud Run: one instance, its state in one bucket, `/events` open to the VCS host only, everything else
# behind Identity-Aware Proxy. This file: what the others share.

# Read only where the number is not given. It waits for the API that it is read through, and for nothing else: a data source that
# waits for something that changes is read late, and whatever is made of its answer would be replaced.
data "google_project" "this" {
  count = var.project_number == null ? 1 : 0

  project_id = var.project_id

  depends_on = [google_project_service.resource_manager]
}

locals {
  with_balancer = var.entry != "no_load_balancer" # backends, one of them with IAP
  own_balancer  = var.entry == "load_balancer"
  labels        = merge({ app = "tidelock", instance = var.name }, var.labels)
  number        = var.project_number == null ? one(data.google_project.this[*].number) : var.project_number

  # Cloud Run's addresses are known before the services are: https://NAME-NUMBER.REGION.run.app
  service_host = "${var.name}-${local.number}.${var.region}.run.app"
  inbox_host   = "${var.name}-inbox-${local.number}.${var.region}.run.app"
  host         = local.with_balancer ? var.domain : local.service_host
  url          = "https://${local.host}${var.base_path}"
  events_url   = local.with_balancer ? "${local.url}/events" : "https://${local.inbox_host}/events"

  # What IAP's assertions are made out to. The backend's id does not depend on the service: the endpoint group names it by a
  # literal, so that there is no cycle.
  iap_audience = (
    local.with_balancer
    ? "/projects/${local.number}/global/backendServices/${one(google_compute_backend_service.pages[*].generated_id)}"
    : "/projects/${local.number}/locations/${var.region}/services/${var.name}"
  )

  apis = var.enable_apis ? toset(concat(
    [
      "artifactregistry.googleapis.com",
      "iam.googleapis.com",
      "iap.googleapis.com",
      "logging.googleapis.com",
      "monitoring.googleapis.com",
      "run.googleapis.com",
      "secretmanager.googleapis.com",
    ],
    local.with_balancer ? ["compute.googleapis.com"] : [],
    var.certificate.kind == "dns_authorized" ? ["certificatemanager.googleapis.com"] : [],
    var.dns_zone == null ? [] : ["dns.googleapis.com"],
    length(var.impersonated_service_accounts) == 0 ? [] : ["iamcredentials.googleapis.com"],
    local.sleeps ? ["cloudscheduler.googleapis.com", "cloudtasks.googleapis.com"] : [],
    var.binary_authorization ? ["binaryauthorization.googleapis.com"] : [],
    var.kms_key == null ? [] : ["cloudkms.googleapis.com"],
  )) : toset([])
}

# The provider looks at the project through this API whenever it switches on another one, so it comes first.
resource "google_project_service" "resource_manager" {
  count = var.enable_apis ? 1 : 0

  project            = var.project_id
  service            = "cloudresourcemanager.googleapis.com"
  disable_on_destroy = false
}

# Apart from the others, because a data source waits for it (kms.tf).
resource "google_project_service" "storage" {
  count = var.enable_apis ? 1 : 0

  project            = var.project_id
  service            = "storage.googleapis.com"
  disable_on_destroy = false

  depends_on = [google_project_service.resource_manager]
}

resource "google_project_service" "this" {
  for_each = local.apis

  project            = var.project_id
  service            = each.value
  disable_on_destroy = false

  depends_on = [google_project_service.resource_manager]
}
