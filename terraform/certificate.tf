# Three ways to a certificate. Names carry a hash of the domain, so that another domain's certificate is made before this one goes; all
# are left by what uses them before they go.

locals {
  certificate_kind = local.own_balancer ? var.certificate.kind : "none"
  domain_hash      = substr(sha256(coalesce(var.domain, "none")), 0, 8)

  ssl_certificates = (
    local.certificate_kind == "managed"
    ? google_compute_managed_ssl_certificate.this[*].id
    : var.certificate.ssl_certificates
  )

  certificate_map_id = (
    local.certificate_kind == "dns_authorized"
    ? one(google_certificate_manager_certificate_map.this[*].id)
    : var.certificate.certificate_map
  )
  has_certificate_map = local.certificate_kind == "dns_authorized" || (local.certificate_kind == "existing" && var.certificate.certificate_map != null)
  certificate_map     = local.has_certificate_map ? "//certificatemanager.googleapis.com/${local.certificate_map_id}" : null
}

# Issued when the domain's A record points at the address.
resource "google_compute_managed_ssl_certificate" "this" {
  count = local.certificate_kind == "managed" ? 1 : 0

  project = var.project_id
  name    = "${var.name}-${local.domain_hash}"

  managed {
    domains = [var.domain]
  }

  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_project_service.this]
}

# Issued when the zone has the record that proves it is ours: before the domain points here.
resource "google_certificate_manager_dns_authorization" "this" {
  count = local.certificate_kind == "dns_authorized" ? 1 : 0

  project = var.project_id
  name    = "${var.name}-${local.domain_hash}"
  domain  = var.domain
  labels  = local.labels

  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_project_service.this]
}

resource "google_certificate_manager_certificate" "this" {
  count = local.certificate_kind == "dns_authorized" ? 1 : 0

  project = var.project_id
  name    = "${var.name}-${local.domain_hash}"
  labels  = local.labels

  managed {
    domains            = [var.domain]
    dns_authorizations = google_certificate_manager_dns_authorization.this[*].id
  }

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_certificate_manager_certificate_map" "this" {
  count = local.certificate_kind == "dns_authorized" ? 1 : 0

  project = var.project_id
  name    = var.name
  labels  = local.labels

  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_project_service.this]
}

resource "google_certificate_manager_certificate_map_entry" "this" {
  count = local.certificate_kind == "dns_authorized" ? 1 : 0

  project      = var.project_id
  name         = "${var.name}-${local.domain_hash}"
  map          = one(google_certificate_manager_certificate_map.this[*].name)
  certificates = google_certificate_manager_certificate.this[*].id
  hostname     = var.domain
  labels       = local.labels

  lifecycle {
    create_before_destroy = true
  }
}
