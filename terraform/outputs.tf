output "url" {
  description = "Address of the pages."
  value       = local.url
}

output "events_url" {
  description = "Payload URL of the webhook."
  value       = local.events_url
}

output "ip_addresses" {
  description = "Addresses at which the domain has to point: IPV4 for an A record, IPV6 for an AAAA record. Empty unless the module makes a load balancer."
  value       = { for v, a in google_compute_global_address.this : v => a.address }
}

output "bucket" {
  description = "Address of the state, as in the server's --bucket."
  value       = local.settings.TIDELOCK_BUCKET
}

output "service_account" {
  description = "Email of the service account as which plans and applies run. Grant it the rights that they need, or let it impersonate other accounts."
  value       = google_service_account.leader.email
}

output "executors" {
  description = "Executors by name: kind and job, as for repos.yaml, and the email of the account of each."
  value = {
    for name, job in google_cloud_run_v2_job.executor : name => {
      kind            = "cloud_run"
      job             = "projects/${var.project_id}/locations/${var.region}/jobs/${job.name}"
      service_account = local.executor_emails[name]
    }
  }
}

output "service_name" {
  description = "Name of the Cloud Run service that leads."
  value       = google_cloud_run_v2_service.leader.name
}

output "inbox_service_name" {
  description = "Name of the Cloud Run service that receives deliveries, without a load balancer."
  value       = one(google_cloud_run_v2_service.inbox[*].name)
}

output "image" {
  description = "Image, by the name under which Cloud Run pulls it."
  value       = local.image
}

output "registry" {
  description = "Registry to which you push images, or through which Cloud Run pulls them."
  value       = var.registry.kind == "none" ? null : local.registry_path
}

output "iap_audience" {
  description = "Audience of IAP's assertions, which the server checks."
  value       = local.iap_audience
}

output "events_backend" {
  description = "Backend for exactly /events, for a load balancer of your own."
  value       = one(google_compute_backend_service.events[*].id)
}

output "pages_backend" {
  description = "Backend for everything else, behind IAP, for a load balancer of your own."
  value       = one(google_compute_backend_service.pages[*].id)
}

output "secret_names" {
  description = "Secrets in Secret Manager that need a version before the service can start."
  value       = local.secret_names
}

output "certificate" {
  description = "Kind and name of the certificate that the module makes, so that scripts can wait for it."
  value = {
    kind = local.certificate_kind
    name = contains(["managed", "dns_authorized"], local.certificate_kind) ? "${var.name}-${local.domain_hash}" : null
  }
}

output "dns_records" {
  description = "DNS records to make by hand, without dns_zone."
  value = var.dns_zone != null ? [] : [
    for v, a in google_compute_global_address.this :
    "${var.domain}. ${v == "IPV6" ? "AAAA" : "A"} ${a.address}"
  ]
}

output "certificate_record" {
  description = "CNAME record to make by hand for a dns_authorized certificate, without dns_zone. Keep the record, because Google renews the certificate by it."
  value = local.certificate_kind != "dns_authorized" || var.dns_zone != null ? null : join(" ", [
    for r in google_certificate_manager_dns_authorization.this[0].dns_resource_record : "${r.name} ${r.type} ${r.data}"
  ])
}

output "next_steps" {
  description = "Steps that are left to do."
  value = join("\n", compact([
    local.certificate_kind == "dns_authorized" && var.dns_zone == null ? "1. Make the record certificate_record (not proxied); when the certificate is active, point ${var.domain} at ${join(" and ", values(google_compute_global_address.this)[*].address)}." : "",
    local.own_balancer && local.certificate_kind != "dns_authorized" && var.dns_zone == null ? "1. Point ${var.domain} at ${join(" and ", values(google_compute_global_address.this)[*].address)}; the certificate follows within the hour." : "",
    var.entry == "existing_load_balancer" ? "1. In your URL map: path ${var.base_path}/events (exactly) to events_backend, everything else of ${var.domain} to pages_backend." : "",
    var.github == null ? "" : "2. Add a webhook: payload URL ${local.events_url}, content type application/json, the secret in ${local.secret_names["gh_webhook_secret"]}; events: pull requests, issue comments, merge groups, pull request reviews, pushes.",
    var.github_app == null ? "" : "2. On the App's page: webhook URL ${local.events_url}, webhook secret that in ${local.secret_names["gh_webhook_secret"]}; then install the App where its repositories are (docs/github-app.md).",
    var.azuredevops == null ? "" : "2. Add the service hooks of docs/azure-devops.md: URL ${local.events_url}, basic authentication ${var.azuredevops.webhook_user} with the password in ${local.secret_names["azuredevops_webhook_password"]}, all resource details.",
    var.gitlab == null ? "" : "2. Add the webhooks of docs/gitlab.md: URL ${local.events_url}, the secret token in ${local.secret_names["gitlab_webhook_secret"]}; events: merge requests, comments, pushes.",
    var.gitea == null ? "" : "2. Add the webhooks of docs/gitea.md: target URL ${local.events_url}, content type application/json, the secret in ${local.secret_names["gitea_webhook_secret"]}; events: those that it names.",
    var.bitbucket == null ? "" : "2. Add the webhooks of docs/bitbucket-cloud.md: URL ${local.events_url}, the secret in ${local.secret_names["bitbucket_webhook_secret"]}; triggers: those that it names.",
    var.bitbucket_data_center == null ? "" : "2. Add the webhooks of docs/bitbucket-data-center.md: URL ${local.events_url}, the secret in ${local.secret_names["bitbucket_data_center_webhook_secret"]}; events: those that it names.",
    length(var.iap_members) == 0 ? "3. Nobody may see the pages yet: set iap_members." : "",
    "4. Give ${google_service_account.leader.email} the rights that plans and applies need, or list service accounts in impersonated_service_accounts.",
    "5. Open ${local.url}, then run `tidelock doctor`.",
  ]))
}
