# The settings of a deployment. project_id, region and repo_allowlist have no default. Neither have domain, which a load balancer needs, and
# image, except in a release's archive. At least one of github, github_app, gitlab, gitea, bitbucket, bitbucket_data_center and
# azuredevops is needed.

# Where

variable "project_id" {
  description = "ID of the project in which the module makes everything."
  type        = string

  validation {
    condition     = can(regex("^([a-z][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id is the project's id (6 to 30 lower-case letters, digits and hyphens), not its name or number."
  }
}

variable "project_number" {
  description = "Number of the project. If it is set, the module does not read the project while Terraform plans, and does not need the Resource Manager API for that."
  type        = string
  default     = null

  validation {
    condition     = var.project_number == null || can(regex("^[0-9]+$", var.project_number))
    error_message = "project_number is the project's number: gcloud projects describe ID --format='value(projectNumber)'."
  }
}

variable "region" {
  description = "Region of service and registry, such as europe-west1, and of the bucket when it is made."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region is a region such as europe-west1, without a zone's letter."
  }
}

variable "name" {
  description = "First part of the name of every resource. Two servers in one project need two names."
  type        = string
  default     = "tidelock"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,18}[a-z0-9]$", var.name))
    error_message = "name has 3 to 20 lower-case letters, digits and hyphens, and begins with a letter."
  }
}

variable "labels" {
  description = "Labels of all resources that can have labels."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "enable_apis" {
  description = "Enable the APIs that the module needs. They stay enabled after a destroy."
  type        = bool
  default     = true
  nullable    = false
}

# How people and the VCS host reach it

variable "entry" {
  description = <<-EOT
    How requests reach the server.
    `load_balancer`: the module makes a load balancer, with certificate, redirect and Cloud Armor.
    `existing_load_balancer`: the module makes backends and policies. Route `/events` and everything else to them (see the outputs).
    `no_load_balancer`: there is no load balancer, and no quota for Cloud Armor is needed. A second, public service receives deliveries,
    and the server itself is behind IAP on its run.app address.
  EOT
  type        = string
  default     = "load_balancer"
  nullable    = false

  validation {
    condition     = contains(["load_balancer", "existing_load_balancer", "no_load_balancer"], var.entry)
    error_message = "entry is load_balancer, existing_load_balancer or no_load_balancer."
  }
}

variable "domain" {
  description = "Host name of the server, such as tidelock.example.com. A load balancer needs it; without one it has no effect."
  type        = string
  default     = null

  validation {
    condition     = var.domain == null || can(regex("^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\\.)+[a-z]{2,}$", var.domain))
    error_message = "domain is a lower-case host name without https:// and without a path."
  }

  validation {
    condition     = var.domain != null || var.entry == "no_load_balancer"
    error_message = "domain is needed unless entry is no_load_balancer."
  }
}

variable "base_path" {
  description = "Path of the server on its domain, such as /tidelock. Empty: the root of the domain."
  type        = string
  default     = ""
  nullable    = false

  validation {
    condition     = var.base_path == "" || can(regex("^(/[A-Za-z0-9._~-]+)+$", var.base_path))
    error_message = "base_path begins with / and has none at its end."
  }

  validation {
    condition     = var.base_path == "" || var.entry != "no_load_balancer"
    error_message = "base_path needs a load balancer."
  }
}

variable "certificate" {
  description = <<-EOT
    Origin of the certificate (with entry = load_balancer).
    `managed`: Google issues it once the domain points at the address. The first time, this takes up to an hour.
    `dns_authorized`: Google's Certificate Manager issues it by one CNAME record, before the domain points here. The module makes the
    record in dns_zone. Without dns_zone, make it by hand (output certificate_record).
    `existing`: your own, as `ssl_certificates` (links of compute certificates) or `certificate_map` (ID of a map of Certificate Manager).
  EOT
  type = object({
    kind             = optional(string, "managed")
    ssl_certificates = optional(list(string), [])
    certificate_map  = optional(string)
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(["managed", "dns_authorized", "existing"], var.certificate.kind)
    error_message = "certificate.kind is managed, dns_authorized or existing."
  }

  validation {
    condition     = (var.certificate.kind == "existing") == (length(var.certificate.ssl_certificates) > 0 || var.certificate.certificate_map != null)
    error_message = "ssl_certificates or certificate_map belong to certificate.kind = existing, which needs one of them."
  }

  validation {
    condition     = length(var.certificate.ssl_certificates) == 0 || var.certificate.certificate_map == null
    error_message = "Give either ssl_certificates or certificate_map."
  }
}

variable "dns_zone" {
  description = "Managed zone of Cloud DNS in which the module makes the records of the domain: its name, and its project if that is another one."
  type = object({
    name    = string
    project = optional(string)
  })
  default = null
}

variable "ipv6" {
  description = "Give the load balancer an IPv6 address in addition."
  type        = bool
  default     = false
  nullable    = false
}

# Who is let in

variable "iap_members" {
  description = "People and accounts that IAP lets see the pages: group:ops@example.com, user:…, domain:…, serviceAccount:… or principalSet:…"
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for m in var.iap_members : can(regex("^(user|group|domain|serviceAccount):[^ ]+$|^principal(Set)?://[^ ]+$", m))])
    error_message = "Each of iap_members begins with user:, group:, domain:, serviceAccount:, principal:// or principalSet://. allUsers and allAuthenticatedUsers are refused."
  }
}

variable "iap_oauth_client" {
  description = "OAuth client of your own. People outside the project's organization need it, and everybody in a project without an organization. Its secret is in the Terraform state, because not every supported release of the provider has a write-only argument for it."
  type = object({
    client_id     = string
    client_secret = string
  })
  default   = null
  sensitive = true
}

variable "iap_programmatic_clients" {
  description = "IDs of OAuth clients with which programs may call pages and API through IAP. They need a load balancer."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.iap_programmatic_clients) == 0 || var.entry != "no_load_balancer"
    error_message = "iap_programmatic_clients needs a load balancer."
  }
}

variable "admins" {
  description = "People who may do everything in the server (--admins): emails, or domains such as @example.com. Empty: everybody whom IAP lets in."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "webhook_sources" {
  description = "Addresses that may call /events: github, gitlab, bitbucket and azuredevops stand for the published ranges of these hosts; CIDR ranges are possible, too. By default the ranges of the hosts that you configure. Required for Gitea, for Bitbucket Data Center and for any other VCS host of your own. The server checks the signature of each delivery in any case."
  type        = list(string)
  default     = null

  validation {
    condition     = var.webhook_sources == null || try(length(var.webhook_sources) > 0, false)
    error_message = "webhook_sources is empty, so that no delivery could arrive."
  }

  validation {
    condition = var.webhook_sources != null || (
      try(var.github.hostname, "github.com") == "github.com" && try(var.github_app.hostname, "github.com") == "github.com"
      && try(var.azuredevops.hostname, "dev.azure.com") == "dev.azure.com" && try(var.gitlab.hostname, "gitlab.com") == "gitlab.com"
      && try(var.bitbucket.base_url, "https://api.bitbucket.org") == "https://api.bitbucket.org" && var.gitea == null && var.bitbucket_data_center == null
    )
    error_message = "webhook_sources is needed: the published addresses are those of github.com, gitlab.com, bitbucket.org and dev.azure.com, not of another host, and not of Gitea or Bitbucket Data Center."
  }

  validation {
    condition     = alltrue([for s in coalesce(var.webhook_sources, []) : contains(["github", "gitlab", "bitbucket", "azuredevops"], s) || can(cidrhost(s, 0))])
    error_message = "Each of webhook_sources is github, gitlab, bitbucket, azuredevops or a CIDR range such as 198.51.100.0/24."
  }

  validation {
    condition     = !anytrue([for s in coalesce(var.webhook_sources, []) : endswith(s, "/0")])
    error_message = "webhook_sources does not take a range of everybody."
  }
}

variable "pages_sources" {
  description = "CIDR ranges from which people can reach the pages. A separate policy of Cloud Armor checks them before IAP asks for a login. Empty: from everywhere."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for s in var.pages_sources : can(cidrhost(s, 0))])
    error_message = "Each of pages_sources is a CIDR range such as 198.51.100.0/24."
  }

  validation {
    condition     = length(var.pages_sources) == 0 || (var.enable_cloud_armor && var.entry != "no_load_balancer")
    error_message = "pages_sources needs Cloud Armor and a load balancer."
  }
}

variable "enable_cloud_armor" {
  description = "Put Cloud Armor in front of /events. New projects often have a quota of 0 rules: request a higher quota, or set false. Only the server itself then checks the addresses of senders."
  type        = bool
  default     = true
  nullable    = false
}

variable "webhook_rate_limit" {
  description = "Maximum number of requests a minute that Cloud Armor accepts from one address at /events. The hosts do not repeat a refused delivery."
  type        = number
  default     = 6000
  nullable    = false

  validation {
    condition     = var.webhook_rate_limit >= 60 && var.webhook_rate_limit <= 1000000
    error_message = "webhook_rate_limit is between 60 and 1000000."
  }
}

# What runs

variable "always_on" {
  description = <<-EOT
    Keep the server running. With `false`, the server sleeps when it has nothing to do, and then costs next to nothing. Deliveries, pages and
    due work wake it, and the first answer takes some seconds. `false` needs a load balancer. Cloud Tasks and Cloud Scheduler wake the server
    at the run.app address of the service, which then admits callers of this project.
  EOT
  type        = bool
  default     = true
  nullable    = false

  validation {
    condition     = var.always_on || var.entry != "no_load_balancer"
    error_message = "always_on = false needs a load balancer, of your own or made here. Without one, Identity-Aware Proxy guards every path of the service, and refuses the tokens that Cloud Tasks sends to /wake."
  }

  validation {
    condition     = var.always_on || !contains(keys(var.settings), "TIDELOCK_IDLE_RELEASE")
    error_message = "With always_on = false, give the time as idle_release, not in settings."
  }
}

variable "idle_release" {
  description = "With always_on = false: time without work after which the server sleeps, 20m at most. Google bills it after each wake-up."
  type        = string
  default     = "1m"
  nullable    = false

  validation {
    condition     = can(regex("^([1-9][0-9]*s|[1-9]m|1[0-9]m|20m)$", var.idle_release)) && try(tonumber(trimsuffix(var.idle_release, "s")) <= 1200, true)
    error_message = "idle_release is a duration such as 1m or 90s, and 20m at most: a call of /wake takes up to 25 minutes."
  }
}

variable "image" {
  description = "Container image, best with its digest. In a release's archive, the default is the release's image; in a checkout, image is required. Cloud Run pulls an image whose name begins with the registry's upstream (ghcr.io/…) through the registry that the module makes."
  type        = string
  default     = null

  validation {
    condition     = var.image == null || can(regex("^[a-z0-9.-]+(:[0-9]+)?/[^ @]+(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?$", var.image))
    error_message = "image is HOST/PATH:TAG or HOST/PATH@sha256:DIGEST."
  }
}

variable "registry" {
  description = <<-EOT
    Repository of Artifact Registry that the module makes. `pull_through`: it fetches images from `upstream` and keeps them. `standard`: you
    push images to it. `none`: no repository, because the image is elsewhere.
  EOT
  type = object({
    kind     = optional(string, "pull_through")
    upstream = optional(string, "https://ghcr.io")
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(["pull_through", "standard", "none"], var.registry.kind)
    error_message = "registry.kind is pull_through, standard or none."
  }

  validation {
    condition     = can(regex("^https://[a-z0-9.-]+$", var.registry.upstream))
    error_message = "registry.upstream is https:// and a host."
  }
}

variable "cpu" {
  description = "Processors of the server: 1, 2, 4, 6 or 8."
  type        = number
  default     = 1
  nullable    = false

  validation {
    condition     = contains([1, 2, 4, 6, 8], var.cpu)
    error_message = "cpu is 1, 2, 4, 6 or 8."
  }
}

variable "memory_gib" {
  description = "Memory of the server in GiB. Scratch space in memory counts against it."
  type        = number
  default     = 4
  nullable    = false

  validation {
    condition     = var.memory_gib >= 1 && var.memory_gib <= { 1 = 4, 2 = 8, 4 = 16, 6 = 24, 8 = 32 }[var.cpu] && floor(var.memory_gib) == var.memory_gib
    error_message = "memory_gib is a whole number of at least 1, and at most 4 for one cpu, 8 for 2, 16 for 4, 24 for 6 and 32 for 8."
  }
}

variable "scratch" {
  description = <<-EOT
    Space for checkouts, tools and caches, which may be lost at any time. `CONTAINER`: the directory of the image, in memory; the server
    limits it to size_gib. `MEMORY`: a volume in memory with a hard limit. It belongs to root, so it is only for an image that runs as root
    (--run-as-user). `DISK`: ephemeral disk, a preview of Cloud Run (launch stage BETA). An instance gets 10 GB of it until the quota is
    raised. `CONTAINER` and `MEMORY` count against memory_gib.
  EOT
  type = object({
    medium   = optional(string, "CONTAINER")
    size_gib = optional(number, 2)
  })
  default  = {}
  nullable = false

  validation {
    condition     = contains(["CONTAINER", "MEMORY", "DISK"], var.scratch.medium)
    error_message = "scratch.medium is CONTAINER, MEMORY or DISK."
  }

  validation {
    condition     = var.scratch.size_gib >= 1 && (var.scratch.medium == "DISK" || var.scratch.size_gib <= var.memory_gib * 0.75)
    error_message = "scratch.size_gib is at least 1, and in memory at most three quarters of memory_gib: an instance that fills its memory is killed without a signal."
  }
}

variable "concurrency" {
  description = "Maximum number of requests at the same time. Each reader of a live log has one request open."
  type        = number
  default     = 250
  nullable    = false

  validation {
    condition     = var.concurrency >= 16 && var.concurrency <= 1000
    error_message = "concurrency is between 16 and 1000."
  }
}

variable "vpc" {
  description = "Network through which the server reaches private hosts. egress is PRIVATE_RANGES_ONLY or ALL_TRAFFIC."
  type = object({
    network    = string
    subnetwork = string
    tags       = optional(list(string), [])
    egress     = optional(string, "PRIVATE_RANGES_ONLY")
  })
  default = null

  validation {
    condition     = var.vpc == null || contains(["PRIVATE_RANGES_ONLY", "ALL_TRAFFIC"], try(var.vpc.egress, ""))
    error_message = "vpc.egress is PRIVATE_RANGES_ONLY or ALL_TRAFFIC."
  }
}

variable "executors" {
  description = <<-EOT
    Cloud Run jobs in which plans and applies run, by the name of the executor. repo_config has to name them, too, with the names in the
    output executors (docs/executors.md). service_account is the email of the account of a job; without it, the module makes an account. The
    account needs the rights that the plans or applies need, and none of the server's. In the bucket it may create and read objects below
    jobs/NAME/. env must not contain secrets.
  EOT
  type = map(object({
    service_account = optional(string)
    image           = optional(string)
    cpu             = optional(number, 1)
    memory_gib      = optional(number, 2)
    env             = optional(map(string), {})
  }))
  default  = {}
  nullable = false

  validation {
    condition     = alltrue([for name, e in var.executors : can(regex("^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$", name)) && contains(range(6, 31), length("${var.name}-${name}"))])
    error_message = "A name in executors has 1 to 20 lower-case letters, digits and hyphens, begins with a letter, and has 6 to 30 characters with name and a hyphen before it: it is part of an account's name."
  }

  validation {
    condition     = alltrue([for name in ["server", "inbox", "wake", "local"] : !contains(keys(var.executors), name)])
    error_message = "server, inbox, wake and local are no names of executors: there are accounts of these names, and local is the server itself."
  }

  validation {
    condition     = alltrue([for e in values(var.executors) : e.service_account == null || can(regex("^[^@ ]+@[^@ ]+\\.iam\\.gserviceaccount\\.com$", e.service_account))])
    error_message = "service_account of each executor is an email that ends in .iam.gserviceaccount.com."
  }

  validation {
    condition     = length(distinct(compact(values(var.executors)[*].service_account))) == length(compact(values(var.executors)[*].service_account))
    error_message = "Two executors have one account: a plan on one would read and write what jobs of the other do. Give each an account of its own."
  }

  validation {
    condition     = !contains(compact(values(var.executors)[*].service_account), "${var.name}-server@${var.project_id}.iam.gserviceaccount.com")
    error_message = "An executor has the server's account, which may do everything in the bucket. Give it an account of its own."
  }

  validation {
    condition     = alltrue([for e in values(var.executors) : contains([1, 2, 4, 6, 8], e.cpu) && e.memory_gib >= 1 && e.memory_gib <= lookup({ 1 = 4, 2 = 8, 4 = 16, 6 = 24, 8 = 32 }, e.cpu, 0)])
    error_message = "An executor's cpu is 1, 2, 4, 6 or 8, and its memory_gib at least 1, and at most 4 for one cpu, 8 for 2, 16 for 4, 24 for 6 and 32 for 8."
  }
}

variable "binary_authorization" {
  description = "Admit only images that the project's Binary Authorization policy allows."
  type        = bool
  default     = false
  nullable    = false
}

variable "deletion_protection" {
  description = "Refuse to destroy the service, although all state is in the bucket. Set it only once the service has been ready: after a failed first start, the next apply replaces the service, which this setting would prevent."
  type        = bool
  default     = false
  nullable    = false
}

# What it serves

variable "github" {
  description = "Account of the server on GitHub: its login, and the host name (github.com, HOST.ghe.com or an Enterprise Server). Its token is the secret gh_token."
  type = object({
    user     = string
    hostname = optional(string, "github.com")
  })
  default = null

  validation {
    condition     = var.github == null || can(regex("^[A-Za-z0-9-]+(\\[bot\\])?$", var.github.user))
    error_message = "github.user is a login, without @."
  }
}

variable "github_app" {
  description = <<-EOT
    GitHub App of the server, in place of github: `id`, and if they are known, `slug` (its name in addresses) and `installation_id`
    (the only installation to use). Its private key is the secret gh_app_key.
  EOT
  type = object({
    id              = number
    slug            = optional(string)
    installation_id = optional(number)
    hostname        = optional(string, "github.com")
  })
  default = null

  validation {
    condition     = var.github_app == null || try(var.github_app.id > 0 && floor(var.github_app.id) == var.github_app.id, false)
    error_message = "github_app.id is the App's number, from its page of settings."
  }

  validation {
    condition     = var.github_app == null || var.github == null
    error_message = "github and github_app are the same host: give the account or the App."
  }
}

variable "azuredevops" {
  description = <<-EOT
    Account of the server on Azure DevOps, alone or in addition to other hosts. `user` is its email address (`DOMAIN\name` on Azure DevOps
    Server), `webhook_user` the name that the service hooks send, `hostname` dev.azure.com or HOST[:PORT][/PATH] of Azure DevOps Server. The
    secret azuredevops_token is its token, and azuredevops_webhook_password the password of the service hooks (16 characters or more).
  EOT
  type = object({
    user         = string
    webhook_user = optional(string, "tidelock")
    hostname     = optional(string, "dev.azure.com")
  })
  default = null

  validation {
    condition     = var.azuredevops == null || try(length(var.azuredevops.user) > 0 && length(var.azuredevops.webhook_user) > 0, false)
    error_message = "azuredevops.user is the account's unique name, and webhook_user is not empty."
  }

  validation {
    condition     = var.azuredevops == null || can(regex("^[A-Za-z0-9.-]+(:[0-9]+)?(/[^ ]+)?$", var.azuredevops.hostname))
    error_message = "azuredevops.hostname is HOST, HOST:PORT or HOST/PATH, without https://."
  }

  validation {
    condition = (
      var.github != null || var.github_app != null || var.azuredevops != null || var.gitlab != null || var.gitea != null || var.bitbucket != null
      || var.bitbucket_data_center != null
    )
    error_message = "The server needs at least one of github, github_app, gitlab, gitea, bitbucket, bitbucket_data_center and azuredevops."
  }
}

variable "gitlab" {
  description = <<-EOT
    Account of the server on GitLab, alone or in addition to other hosts. `user` is its user name, `hostname` gitlab.com or
    HOST[:PORT][/PATH] of an instance. The secret gitlab_token is its token, and gitlab_webhook_secret the secret token of the webhooks (16
    characters or more).
  EOT
  type = object({
    user     = string
    hostname = optional(string, "gitlab.com")
  })
  default = null

  validation {
    condition     = var.gitlab == null || try(length(var.gitlab.user) > 0, false)
    error_message = "gitlab.user is the account's user name."
  }

  validation {
    condition     = var.gitlab == null || can(regex("^[A-Za-z0-9.-]+(:[0-9]+)?(/[^ ]+)?$", var.gitlab.hostname))
    error_message = "gitlab.hostname is HOST, HOST:PORT or HOST/PATH, without https://."
  }
}

variable "gitea" {
  description = <<-EOT
    Account of the server on Gitea or Forgejo, alone or in addition to other hosts. `user` is its user name, `base_url` https://gitea.com or
    https://HOST[:PORT][/PATH] of an instance. The secret gitea_token is its token, and gitea_webhook_secret the secret of the webhooks (16
    characters or more). Set webhook_sources, too.
  EOT
  type = object({
    user     = string
    base_url = optional(string, "https://gitea.com")
  })
  default = null

  validation {
    condition     = var.gitea == null || try(length(var.gitea.user) > 0, false)
    error_message = "gitea.user is the account's user name."
  }

  validation {
    condition     = var.gitea == null || can(regex("^https://[A-Za-z0-9.-]+(:[0-9]+)?(/[^ ]*)?$", var.gitea.base_url))
    error_message = "gitea.base_url is https://HOST, https://HOST:PORT or https://HOST/PATH."
  }
}

variable "bitbucket" {
  description = <<-EOT
    Account of the server on Bitbucket Cloud, alone or in addition to other hosts. `user` is its e-mail address, or x-token-auth for an access
    token. `base_url` is https://api.bitbucket.org, or the address of a proxy with /2.0 at its end. The secret bitbucket_token is its token,
    and bitbucket_webhook_secret the secret of the webhooks (16 characters or more).
  EOT
  type = object({
    user     = string
    base_url = optional(string, "https://api.bitbucket.org")
  })
  default = null

  validation {
    condition     = var.bitbucket == null || try(length(var.bitbucket.user) > 0, false)
    error_message = "bitbucket.user is the account's e-mail address, or x-token-auth for an access token."
  }

  validation {
    condition = var.bitbucket == null || can(regex(
      "^https://(api[.]bitbucket[.]org|[A-Za-z0-9.-]+(:[0-9]+)?(/[^ ]*)?/2[.]0)/?$", var.bitbucket.base_url
    ))
    error_message = "bitbucket.base_url is https://api.bitbucket.org, or https://HOST/2.0 of a proxy before it; Bitbucket Data Center is bitbucket_data_center."
  }
}

variable "bitbucket_data_center" {
  description = <<-EOT
    Account of the server on Bitbucket Data Center, alone or in addition to other hosts. `user` is the account's user name, or x-token-auth
    for the token of a project or repository. `base_url` is https://HOST[:PORT][/PATH]. Its token is the secret
    bitbucket_data_center_token. The secret of its webhooks, of 16 characters or more, is bitbucket_data_center_webhook_secret. Set
    webhook_sources, too.
  EOT
  type = object({
    user     = string
    base_url = string
  })
  default = null

  validation {
    condition     = var.bitbucket_data_center == null || try(length(var.bitbucket_data_center.user) > 0, false)
    error_message = "bitbucket_data_center.user is the account's user name, or x-token-auth for the token of a project or repository."
  }

  validation {
    condition     = var.bitbucket_data_center == null || can(regex("^https://[A-Za-z0-9.-]+(:[0-9]+)?(/[^ ]*)?$", var.bitbucket_data_center.base_url))
    error_message = "bitbucket_data_center.base_url is https://HOST, https://HOST:PORT or https://HOST/PATH."
  }
}

variable "repo_allowlist" {
  description = "Repositories to serve, such as github.com/acme/*. An entry with ! in front excludes repositories. Everybody who can open a pull request there can run code with the server's identity."
  type        = list(string)

  validation {
    condition     = length(var.repo_allowlist) > 0 && alltrue([for r in var.repo_allowlist : can(regex("^!?[A-Za-z0-9.*-]+(:[0-9]+)?/[^ ,]+$", r))])
    error_message = "repo_allowlist has at least one entry, each HOST/OWNER/REPO with * where anything may stand."
  }

  validation {
    condition     = !anytrue([for r in var.repo_allowlist : contains(["*/*", "github.com/*", "gitlab.com/*", "gitea.com/*", "codeberg.org/*", "bitbucket.org/*", "dev.azure.com/*", "*"], r)])
    error_message = "repo_allowlist does not take all of github.com, gitlab.com, gitea.com, codeberg.org, bitbucket.org or dev.azure.com: anybody could run code here."
  }
}

variable "repo_config" {
  description = "Text of repos.yaml, the rules for repositories: file(\"repos.yaml\")."
  type        = string
  default     = null

  validation {
    condition     = var.repo_config == null || can(yamldecode(var.repo_config))
    error_message = "repo_config is not YAML."
  }
}

variable "settings" {
  description = "Further settings of the server, by the name of the variable, such as { TIDELOCK_PARALLEL_PLAN = \"true\" }. For secrets, use secret_env."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for k in keys(var.settings) : can(regex("^[A-Z][A-Z0-9_]*$", k))])
    error_message = "Names of settings are upper-case variables."
  }

  validation {
    condition     = !anytrue([for k in keys(var.settings) : can(regex("(TOKEN|SECRET|PASSWORD|APP_KEY)$", k))])
    error_message = "settings would show a secret in the state. Put it into Secret Manager and name it in secret_env."
  }

  validation {
    condition     = length(setintersection(keys(var.settings), ["PORT", "TIDELOCK_BUCKET", "TIDELOCK_IAP_AUDIENCE", "TIDELOCK_TRUSTED_PROXY_HOPS", "TIDELOCK_WEBHOOK_ALLOWLIST", "TIDELOCK_EVENTS_ONLY", "TIDELOCK_ATLANTIS_URL", "TIDELOCK_WAKE_ACCOUNT", "TIDELOCK_WAKE_QUEUE", "TIDELOCK_WAKE_URL"])) == 0
    error_message = "PORT, bucket, IAP audience, proxy hops, webhook allowlist, events-only, the address and what wakes the server are set here, so that they fit together."
  }
}

variable "sync_interval" {
  description = "Interval at which the server saves the logs of running jobs. It saves all other state at once."
  type        = string
  default     = "60s"
  nullable    = false

  validation {
    condition     = can(regex("^[0-9]+(s|m|h)$", var.sync_interval))
    error_message = "sync_interval is a duration such as 60s."
  }
}

# Secrets

variable "secrets" {
  description = "Names of the secrets in Secret Manager, for the hosts that you configure. By default NAME-gh-token, NAME-gh-webhook-secret and so on."
  type = object({
    gh_token                             = optional(string)
    gh_app_key                           = optional(string)
    gh_webhook_secret                    = optional(string)
    azuredevops_token                    = optional(string)
    azuredevops_webhook_password         = optional(string)
    gitlab_token                         = optional(string)
    gitlab_webhook_secret                = optional(string)
    gitea_token                          = optional(string)
    gitea_webhook_secret                 = optional(string)
    bitbucket_token                      = optional(string)
    bitbucket_webhook_secret             = optional(string)
    bitbucket_data_center_token          = optional(string)
    bitbucket_data_center_webhook_secret = optional(string)
  })
  default  = {}
  nullable = false
}

variable "create_secrets" {
  description = "Make the secrets. secret_values has their first values; without it, add a version to each secret before the module makes the service."
  type        = bool
  default     = false
  nullable    = false
}

variable "secret_values" {
  description = "Values of the secrets, with create_secrets. They are in neither plan nor state. Increase secret_values_version with each change of a value."
  type = object({
    gh_token                             = optional(string)
    gh_app_key                           = optional(string)
    gh_webhook_secret                    = optional(string)
    azuredevops_token                    = optional(string)
    azuredevops_webhook_password         = optional(string)
    gitlab_token                         = optional(string)
    gitlab_webhook_secret                = optional(string)
    gitea_token                          = optional(string)
    gitea_webhook_secret                 = optional(string)
    bitbucket_token                      = optional(string)
    bitbucket_webhook_secret             = optional(string)
    bitbucket_data_center_token          = optional(string)
    bitbucket_data_center_webhook_secret = optional(string)
  })
  default   = null
  sensitive = true
  ephemeral = true
}

variable "secret_values_version" {
  description = "Version of secret_values: 0 without values. Increase it with each change of a value."
  type        = number
  default     = 0
  nullable    = false
}

variable "secret_versions" {
  description = <<-EOT
    Version numbers of secrets, by the keys of secrets and the variables of secret_env. For a secret without a number, Terraform looks up the
    newest version when it plans. The service refers to numbers, so a new version causes a rollout, and the old revision keeps the old value.
    `gh_previous_webhook_secret`, `gitlab_previous_webhook_secret`, `gitea_previous_webhook_secret`, `bitbucket_previous_webhook_secret`,
    `bitbucket_data_center_previous_webhook_secret` and `azuredevops_previous_webhook_password` are older versions of the webhook secrets and
    of the service hooks' password. The server accepts them, too, until the host uses the newer ones.
  EOT
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for v in values(var.secret_versions) : can(regex("^([1-9][0-9]*|latest)$", v))])
    error_message = "Each of secret_versions is a number (or latest, which is read at each start and is no rollout)."
  }
}

variable "secret_env" {
  description = "Further secrets, by the name of the variable, such as { TIDELOCK_API_SECRET = \"tidelock-api-secret\" }. Each value is the name of a secret in Secret Manager, which needs a version."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for k, v in var.secret_env : can(regex("^[A-Z][A-Z0-9_]*$", k)) && can(regex("^[A-Za-z0-9_-]{1,255}$", v))])
    error_message = "secret_env maps upper-case variables to names of secrets in this project."
  }
}

variable "token_as_file" {
  description = <<-EOT
    Mount tokens and the App's key as files, so that the server uses a new version without a restart. Set true only with --run-as-user, which
    needs an image that runs as root. Otherwise steps run as the server's user and can read the files, while the server removes variables with
    secrets from their environment.
  EOT
  type        = bool
  default     = false
  nullable    = false
}

variable "secret_locations" {
  description = "Regions of the secrets that the module makes, if the organization does not allow automatic replication."
  type        = list(string)
  default     = []
  nullable    = false
}

# State

variable "bucket" {
  description = <<-EOT
    The bucket with the state. `create = false` uses an existing bucket, which has to contain nothing else. `name` is PROJECT-NAME-state by
    default. `location`, by default the region, counts only when the bucket is made: a later change of the region does not move the bucket.
    `prefix` is the folder in the bucket. Replaced and deleted objects can be restored for `noncurrent_days`. Objects that somebody has deleted
    for good can be restored for `soft_delete_days` (0, or 7 to 90). This is the last protection, because steps of pull requests have the
    server's rights. `log_bucket` gets access logs. With `force_destroy`, a destroy also deletes the state.
  EOT
  type = object({
    create           = optional(bool, true)
    name             = optional(string)
    location         = optional(string)
    prefix           = optional(string, "tidelock")
    noncurrent_days  = optional(number, 14)
    soft_delete_days = optional(number, 7)
    log_bucket       = optional(string)
    force_destroy    = optional(bool, false)
  })
  default  = {}
  nullable = false

  validation {
    condition     = var.bucket.create || var.bucket.name != null
    error_message = "bucket.create = false needs bucket.name."
  }

  validation {
    condition     = can(regex("^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$", var.bucket.prefix))
    error_message = "bucket.prefix is a folder without / at its ends."
  }

  validation {
    condition     = var.bucket.soft_delete_days == 0 || (var.bucket.soft_delete_days >= 7 && var.bucket.soft_delete_days <= 90)
    error_message = "bucket.soft_delete_days is 0, or 7 to 90."
  }

  validation {
    condition     = var.bucket.noncurrent_days >= 1
    error_message = "bucket.noncurrent_days is at least 1."
  }
}

variable "kms_key" {
  description = <<-EOT
    Key of your own for bucket, registry and the service's image. `name` is projects/…/cryptoKeys/… of a key in the region, which the same run
    may make. The module grants Google's service agents their rights on the key, and removes these rights when you remove kms_key. Objects
    that were written with the key are then unreadable, so rewrite them first.
  EOT
  type = object({
    name = string
  })
  default = null

  validation {
    condition     = var.kms_key == null || can(regex("^projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+$", var.kms_key.name))
    error_message = "kms_key.name is projects/P/locations/L/keyRings/R/cryptoKeys/K."
  }
}

variable "service_agents" {
  description = "Emails of Google's service agents, with the keys `iap`, `run` and `artifactregistry`. modules/service-agents returns them, and makes the agents that a new project lacks. For a missing key, the module uses the usual name of the agent, which has to exist."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(setsubtract(keys(var.service_agents), ["iap", "run", "artifactregistry"])) == 0
    error_message = "service_agents has no keys but iap, run and artifactregistry."
  }
}

variable "impersonated_service_accounts" {
  description = "Emails of service accounts that the server may impersonate, so that its own account needs no rights for plans and applies. The keys are names of your choice: { planner = google_service_account.planner.email }."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for e in values(var.impersonated_service_accounts) : can(regex("^[^@ ]+@[^@ ]+\\.iam\\.gserviceaccount\\.com$", e))])
    error_message = "Each of impersonated_service_accounts is an email that ends in .iam.gserviceaccount.com."
  }
}

# Watching it

variable "monitoring" {
  description = "Alerts and their receivers. The module makes a notification channel for each of `emails`; `channels` are names of existing ones."
  type = object({
    enabled  = optional(bool, true)
    emails   = optional(list(string), [])
    channels = optional(list(string), [])
  })
  default  = {}
  nullable = false
}
