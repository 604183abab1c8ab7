# Records in a Cloud DNS zone, if one is given.

locals {
  zone_project = try(coalesce(var.dns_zone.project, var.project_id), var.project_id)
}

resource "google_dns_record_set" "address" {
  for_each = var.dns_zone == null ? toset([]) : local.ip_versions

  project      = local.zone_project
  managed_zone = var.dns_zone.name
  name         = "${var.domain}."
  type         = each.value == "IPV6" ? "AAAA" : "A"
  ttl          = 300
  rrdatas      = [google_compute_global_address.this[each.value].address]
}

resource "google_dns_record_set" "certificate" {
  count = local.certificate_kind == "dns_authorized" && var.dns_zone != null ? 1 : 0

  project      = local.zone_project
  managed_zone = var.dns_zone.name
  name         = google_certificate_manager_dns_authorization.this[0].dns_resource_record[0].name
  type         = google_certificate_manager_dns_authorization.this[0].dns_resource_record[0].type
  ttl          = 300
  rrdatas      = [google_certificate_manager_dns_authorization.this[0].dns_resource_record[0].data]
}
