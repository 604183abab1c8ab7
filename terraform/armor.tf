# Cloud Armor before /events: the VCS host's addresses, and nobody else. It is the first of two locks; the server has the same list,
# and checks the signature in any case.

locals {
  # Published ranges. A plan must not depend on somebody's web server, so they are written down here; the server fetches GitHub's and
  # Azure DevOps' from their endpoints by itself. Sources: api.github.com/meta (hooks), docs.gitlab.com, ip-ranges.atlassian.com,
  # learn.microsoft.com (Azure DevOps allow list). Gathered in November 2026; README.md says how to look again.
  published_ranges = {
    github = [
      "140.82.112.0/20", "143.55.64.0/20", "185.199.108.0/22", "192.30.252.0/22", "2606:50c0::/32", "2a0a:a440::/29",
    ]
    gitlab = ["34.74.90.64/28", "34.74.226.0/24"]
    bitbucket = [
      "104.192.136.0/21", "13.200.41.128/25", "13.52.5.0/25", "18.205.93.0/25", "18.234.32.128/25", "185.166.140.0/22",
    ]
    azuredevops = [
      "191.235.226.0/24", "20.125.155.0/24", "20.166.41.0/24", "20.189.107.0/24", "20.195.68.0/24", "20.204.197.192/26",
      "20.233.130.0/25", "20.37.158.0/23", "20.37.194.0/24", "20.39.13.0/26", "20.41.194.0/24", "20.41.6.0/23",
      "20.42.134.0/23", "20.42.226.0/24", "20.42.5.0/24", "20.45.196.64/26", "20.91.148.128/25", "40.119.10.0/24",
      "40.74.28.0/23", "40.80.187.0/24", "40.82.252.0/24", "51.104.26.0/24", "52.150.138.0/24", "52.228.82.0/24",
    ]
  }

  # Without webhook_sources, the hosts that are served. Gitea and Bitbucket Data Center publish no ranges, and need webhook_sources.
  webhook_sources = var.webhook_sources != null ? var.webhook_sources : concat(
    local.with_github ? ["github"] : [],
    var.azuredevops != null ? ["azuredevops"] : [],
    var.gitlab != null ? ["gitlab"] : [],
    var.bitbucket != null ? ["bitbucket"] : [],
  )
  webhook_ranges = sort(distinct(flatten([for s in local.webhook_sources : lookup(local.published_ranges, s, [s])])))

  # The server knows the names, and keeps the ranges of those fresh that publish them for programs.
  server_allowlist = sort(distinct(flatten([
    for s in local.webhook_sources : contains(["github", "gitlab", "bitbucket", "azuredevops"], s) ? [s] : lookup(local.published_ranges, s, [s])
  ])))

  with_armor = local.with_balancer && var.enable_cloud_armor
}

resource "google_compute_security_policy" "events" {
  #checkov:skip=CKV_GCP_73:Only the host's addresses pass, and a delivery that quotes an exploit must not be lost; everybody else is denied by the last rule. A rule with an expression needs a quota that is 0 in new projects.
  count = local.with_armor ? 1 : 0

  project     = var.project_id
  name        = "${var.name}-events"
  description = "Deliveries come from the VCS host's addresses"

  # Ten ranges are the most that one rule takes. The limit is part of the rule, because a throttle rule that matched more would let
  # in whatever stays below it.
  dynamic "rule" {
    for_each = { for i, ranges in chunklist(local.webhook_ranges, 10) : i => ranges }
    content {
      action      = "throttle"
      priority    = 1000 + rule.key
      description = "The VCS host's addresses (${rule.key + 1})"
      match {
        versioned_expr = "SRC_IPS_V1"
        config {
          src_ip_ranges = rule.value
        }
      }
      rate_limit_options {
        conform_action = "allow"
        exceed_action  = "deny(429)"
        enforce_on_key = "IP"
        rate_limit_threshold {
          count        = var.webhook_rate_limit
          interval_sec = 60
        }
      }
    }
  }

  # Without an explicit last rule the API adds one that allows.
  rule {
    action      = "deny(403)"
    priority    = 2147483647
    description = "Nobody else"
    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }
  }

  advanced_options_config {
    json_parsing = "STANDARD"
    log_level    = "NORMAL"
  }

  # Turned off: the backend leaves the policy before it goes ("is already being used by" otherwise).
  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_project_service.this]
}

# Optional, before the pages. Cloud Armor runs before IAP on this kind of load balancer.
resource "google_compute_security_policy" "pages" {
  count = local.with_armor && length(var.pages_sources) > 0 ? 1 : 0

  project     = var.project_id
  name        = "${var.name}-pages"
  description = "Pages are reached from known networks"

  rule {
    action      = "deny(403)"
    priority    = 500
    description = "Log4j and the like"
    match {
      expr {
        expression = "evaluatePreconfiguredExpr('cve-canary')"
      }
    }
  }

  dynamic "rule" {
    for_each = { for i, ranges in chunklist(sort(var.pages_sources), 10) : i => ranges }
    content {
      action      = "allow"
      priority    = 1000 + rule.key
      description = "Known networks (${rule.key + 1})"
      match {
        versioned_expr = "SRC_IPS_V1"
        config {
          src_ip_ranges = rule.value
        }
      }
    }
  }

  rule {
    action      = "deny(403)"
    priority    = 2147483647
    description = "Nobody else"
    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }
  }

  # Turned off: the backend leaves the policy before it goes ("is already being used by" otherwise).
  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_project_service.this]
}
