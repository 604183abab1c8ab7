# The settings of a deployment. Only project_id, region, repo_allowlist and (with a load balancer) domain have no default; nor has image,
# but in a release's archive. At least one of github, github_app, gitlab, gitea, bitbucket and azuredevops is needed.

# Where

variable "project_id" {
  description = "Project that everything is made in."
  type        = string

  validation {
    condition     = can(regex("^([a-z][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id is the project's id (6 to 30 lower-case letters, digits and hyphens), not its name or number."
  }
}

variable "project_number" {
  description = "The project's number. Given, nothing is read while planning, and the Resource Manager API is not needed for it."
  type        = string
  default     = null

  validation {
    condition     = var.project_number == null || can(regex("^[0-9]+$", var.project_number))
    error_message = "project_number is the project's number: gcloud projects describe ID --format='value(projectNumber)'."
  }
}

variable "region" {
  description = "Region of service, registry and (when it is made) bucket, such as europe-west1."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region is a region such as europe-west1, without a zone's letter."
  }
}

variable "name" {
  description = "First part of every name that is made here. Two servers in one project need two names."
  type        = string
  default     = "tidelock"
  nullable    = false

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{1,18}[a-z0-9]$", var.name))
    error_message = "name has 3 to 20 lower-case letters, digits and hyphens, and begins with a letter."
  }
}

variable "labels" {
  description = "Labels on everything that can carry them."
  type        = map(string)
  default     = {}
  nullable    = false
}

variable "enable_apis" {
  description = "Switch on the APIs that are needed. They stay on when this is destroyed."
  type        = bool
  default     = true
  nullable    = false
}

# How people and the VCS host reach it

variable "entry" {
  description = <<-EOT
    How requests come in.
    `load_balancer`: one is made here, with certificate, redirect and Cloud Armor.
    `existing_load_balancer`: backends and policies are made; route `/events` and everything else to them (see the outputs).
    `no_load_balancer`: none, and no Cloud Armor quota needed; a second, public service receives deliveries and the leader is
    behind IAP on its own run.app address.
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
  description = "Host name of the server, such as tidelock.example.com. Needed with a load balancer, not used without."
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
  description = "Path below which the server lives, such as /tidelock; empty for the root of the domain."
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
    Where the certificate comes from (with entry = load_balancer).
    `managed`: Google's, issued once the domain points at the address; takes up to an hour, the very first time.
    `dns_authorized`: Google's through Certificate Manager, issued before the domain points here, by one CNAME record: made in
    dns_zone, or by hand where none is given (output certificate_record).
    `existing`: yours, as `ssl_certificates` (links of compute certificates) or `certificate_map` (id of a Certificate Manager map).
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
  description = "Cloud DNS managed zone (its name, and its project if it is another one) in which records for the domain are made."
  type = object({
    name    = string
    project = optional(string)
  })
  default = null
}

variable "ipv6" {
  description = "Give the load balancer an IPv6 address too."
  type        = bool
  default     = false
  nullable    = false
}

# Who is let in

variable "iap_members" {
  description = "Who may see the pages: group:ops@example.com, user:…, domain:…, serviceAccount:… or principalSet:…"
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = alltrue([for m in var.iap_members : can(regex("^(user|group|domain|serviceAccount):[^ ]+$|^principal(Set)?://[^ ]+$", m))])
    error_message = "Each of iap_members begins with user:, group:, domain:, serviceAccount:, principal:// or principalSet://. allUsers and allAuthenticatedUsers are refused."
  }
}

variable "iap_oauth_client" {
  description = "OAuth client of your own, needed to let in people outside the project's organization, and in a project that belongs to none. Its secret lands in the state: the provider has no write-only argument for it in every supported release."
  type = object({
    client_id     = string
    client_secret = string
  })
  default   = null
  sensitive = true
}

variable "iap_programmatic_clients" {
  description = "OAuth client ids with which programs may call pages and API through IAP. With a load balancer only."
  type        = list(string)
  default     = []
  nullable    = false

  validation {
    condition     = length(var.iap_programmatic_clients) == 0 || var.entry != "no_load_balancer"
    error_message = "iap_programmatic_clients needs a load balancer."
  }
}

variable "admins" {
  description = "Who may do everything in the server (its --admins): emails, or domains written as @example.com. Empty: everybody whom IAP lets in."
  type        = list(string)
  default     = []
  nullable    = false
}

variable "webhook_sources" {
  description = "Who may call /events: github, gitlab, bitbucket, azuredevops (their published ranges) or CIDR ranges of your own. By default the hosts that are served; needed for a server of your own and for Gitea. Deliveries are signed all the same."
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
      && try(var.bitbucket.base_url, "https://api.bitbucket.org") == "https://api.bitbucket.org" && var.gitea == null
    )
    error_message = "webhook_sources is needed: the published addresses are those of github.com, gitlab.com, bitbucket.org and dev.azure.com, not of another host, and not of Gitea."
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
  description = "CIDR ranges from which pages can be reached at all, before IAP asks who it is (a Cloud Armor policy of its own). Empty: from anywhere."
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
  description = "Put Cloud Armor before /events. New projects often have a quota of 0 rules: ask for more, or set this to false and the server's own allowlist is the only one."
  type        = bool
  default     = true
  nullable    = false
}

variable "webhook_rate_limit" {
  description = "Most requests a minute that Cloud Armor lets one address send to /events. The hosts do not repeat a refused delivery."
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
    Keep the server running. `false`: it sleeps when it has nothing to do, and costs next to nothing then. Deliveries, pages and due work
    wake it, and the first answer takes some seconds. Needs a load balancer. Cloud Tasks and Cloud Scheduler wake it at the service's run.app
    address, which then admits callers of this project.
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
  description = "Container image, best with its digest; by default that of the release whose archive this is (needed in a checkout). One that begins with the registry's upstream (ghcr.io/…) is pulled through the registry that is made here."
  type        = string
  default     = null

  validation {
    condition     = var.image == null || can(regex("^[a-z0-9.-]+(:[0-9]+)?/[^ @]+(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?$", var.image))
    error_message = "image is HOST/PATH:TAG or HOST/PATH@sha256:DIGEST."
  }
}

variable "registry" {
  description = <<-EOT
    Artifact Registry repository. `pull_through`: one that fetches from `upstream` and keeps what it fetched. `standard`: one to push
    to. `none`: the image is somewhere else.
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
    Where checkouts, tools and caches lie; nothing there needs to be kept. `CONTAINER`: the image's own directory, in memory, with
    size_gib as the server's limit. `MEMORY`: a volume with a hard limit, which belongs to root: only for an image that runs as root
    (--run-as-user). `DISK`: ephemeral disk, a preview of Cloud Run (launch stage BETA), of which an instance gets 10 GB until the quota
    is raised. The first two count against memory_gib.
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
  description = "Most requests at the same time on the one instance. Live logs hold one each."
  type        = number
  default     = 250
  nullable    = false

  validation {
    condition     = var.concurrency >= 16 && var.concurrency <= 1000
    error_message = "concurrency is between 16 and 1000."
  }
}

variable "vpc" {
  description = "Network that the server sends through, to reach private hosts. egress is PRIVATE_RANGES_ONLY or ALL_TRAFFIC."
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
    Cloud Run jobs that plans and applies run in, by the name of the executor. Name them in repo_config too, with the names that the output
    executors has (docs/executors.md). service_account is the email of an account for them; without, one is made. They need what their plans
    or applies need, and nothing of the server's: in the bucket they may create and read objects below jobs/NAME/. Variables hold no secrets.
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
  description = "Refuse to destroy the service. All state is in the bucket, so nothing is lost with it. Only for a service that has been ready once: one whose first start failed is replaced by the next apply, which this would refuse."
  type        = bool
  default     = false
  nullable    = false
}

# What it serves

variable "github" {
  description = "Our account on GitHub: its login, the host name (github.com, HOST.ghe.com or an Enterprise server). Its token is the secret gh_token."
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
    The server as a GitHub App, in place of github: `id`, and if they are known, `slug` (its name in addresses) and `installation_id`
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
    Our account on Azure DevOps, alone or beside GitHub: `user` is its email address (`DOMAIN\name` on a server), `webhook_user` the name
    that the service hooks send, `hostname` dev.azure.com or HOST[:PORT][/PATH] of a server. Its token is the secret azuredevops_token, the
    password of the service hooks azuredevops_webhook_password, of 16 characters or more.
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
    )
    error_message = "The server needs at least one of github, github_app, gitlab, gitea, bitbucket and azuredevops."
  }
}

variable "gitlab" {
  description = <<-EOT
    Our account on GitLab, alone or beside other hosts: `user` is its user name, `hostname` gitlab.com or HOST[:PORT][/PATH] of an instance.
    Its token is the secret gitlab_token, the secret token of the webhooks gitlab_webhook_secret, of 16 characters or more.
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
    Our account on Gitea or Forgejo, alone or beside other hosts: `user` is its user name, `base_url` https://gitea.com or
    https://HOST[:PORT][/PATH] of an instance. Its token is the secret gitea_token, what deliveries are signed with gitea_webhook_secret, of
    16 characters or more. Needs webhook_sources.
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
    Our account on Bitbucket Cloud, alone or beside other hosts: `user` is its e-mail address, or x-token-auth for an access token; `base_url`
    https://api.bitbucket.org, or that of a proxy with /2.0 at its end. Its token is the secret bitbucket_token, what deliveries are signed with
    bitbucket_webhook_secret, of 16 characters or more.
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
    error_message = "bitbucket.base_url is https://api.bitbucket.org, or https://HOST/2.0 of a proxy before it; Bitbucket Data Center is not supported yet."
  }
}

variable "repo_allowlist" {
  description = "Repositories to serve, such as github.com/acme/*; ! in front excludes. Whoever can open a pull request there runs code with the server's identity."
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
  description = "Further settings of the server by variable name, such as { TIDELOCK_PARALLEL_PLAN = \"true\" }. Nothing secret; see secret_env."
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
  description = "How often running logs are saved (what matters is saved at once)."
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
  description = "Names of the secrets in Secret Manager, those of the hosts that are served. By default NAME-gh-token, NAME-gh-webhook-secret and so on."
  type = object({
    gh_token                     = optional(string)
    gh_app_key                   = optional(string)
    gh_webhook_secret            = optional(string)
    azuredevops_token            = optional(string)
    azuredevops_webhook_password = optional(string)
    gitlab_token                 = optional(string)
    gitlab_webhook_secret        = optional(string)
    gitea_token                  = optional(string)
    gitea_webhook_secret         = optional(string)
    bitbucket_token              = optional(string)
    bitbucket_webhook_secret     = optional(string)
  })
  default  = {}
  nullable = false
}

variable "create_secrets" {
  description = "Make the secrets here. Their first values come from secret_values; without those, add a version to each before the service is made."
  type        = bool
  default     = false
  nullable    = false
}

variable "secret_values" {
  description = "Values for create_secrets. They reach neither plan nor state. Give a new secret_values_version with new values."
  type = object({
    gh_token                     = optional(string)
    gh_app_key                   = optional(string)
    gh_webhook_secret            = optional(string)
    azuredevops_token            = optional(string)
    azuredevops_webhook_password = optional(string)
    gitlab_token                 = optional(string)
    gitlab_webhook_secret        = optional(string)
    gitea_token                  = optional(string)
    gitea_webhook_secret         = optional(string)
    bitbucket_token              = optional(string)
    bitbucket_webhook_secret     = optional(string)
  })
  default   = null
  sensitive = true
  ephemeral = true
}

variable "secret_values_version" {
  description = "Number of the present secret_values: 0 means that none are given; count up when they change."
  type        = number
  default     = 0
  nullable    = false
}

variable "secret_versions" {
  description = <<-EOT
    Version numbers of secrets, by the keys of secrets and the variables of secret_env. The service names numbers, so that a
    rotated secret is a rollout and an old revision goes on with the old value. Of what is left out the newest is looked up while planning.
    `gh_previous_webhook_secret`, `gitlab_previous_webhook_secret`, `gitea_previous_webhook_secret`, `bitbucket_previous_webhook_secret` and
    `azuredevops_previous_webhook_password` are older versions of the webhook secrets and of the service hooks' password that are still
    taken while the host changes to the newer one.
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
  description = "Further secrets by variable, such as { TIDELOCK_API_SECRET = \"tidelock-api-secret\" }: names of secrets in Secret Manager that have a version."
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
    Mount tokens and the App's key as files, so that a new version is used without a restart. The server takes variables out of the environment of
    what it runs, but what runs as the same user can read a file: true only with an image that runs as root and --run-as-user.
  EOT
  type        = bool
  default     = false
  nullable    = false
}

variable "secret_locations" {
  description = "Regions that secrets made here are kept in, where the organization does not allow automatic replication."
  type        = list(string)
  default     = []
  nullable    = false
}

# State

variable "bucket" {
  description = <<-EOT
    The bucket with the state. `create = false` uses one that exists and holds nothing else; `name` is PROJECT-NAME-state by default.
    `location` (the region
    by default) counts when the bucket is made: it stays where it is when the region changes. `prefix` is the folder in it. `noncurrent_days` is how long replaced and deleted objects can be had back, `soft_delete_days`
    how long even those that somebody deleted for good (0, or 7 to 90): what runs in pull requests has the server's rights, so this is
    the last net. `log_bucket` takes access logs. `force_destroy` lets a destroy delete the state.
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
    Key of your own for bucket, registry and the service's image: `name` is projects/…/cryptoKeys/…, in the region, and may be made in
    the same run. Rights for Google's service agents are granted here, and taken back when the key is left out again: objects that
    were written with it can then no longer be read, so rewrite them first.
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
  description = "Emails of Google's service agents by `iap`, `run`, `artifactregistry`, from modules/service-agents, which makes those that a fresh project lacks. Left out, their usual names are taken, and they have to exist."
  type        = map(string)
  default     = {}
  nullable    = false

  validation {
    condition     = length(setsubtract(keys(var.service_agents), ["iap", "run", "artifactregistry"])) == 0
    error_message = "service_agents has no keys but iap, run and artifactregistry."
  }
}

variable "impersonated_service_accounts" {
  description = "Emails of service accounts that the server may act as, so that plans and applies need no rights of its own, under names of your choice: { planner = google_service_account.planner.email }."
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
  description = "Alerts, and whom they reach: `emails` make notification channels, `channels` are names of existing ones."
  type = object({
    enabled  = optional(bool, true)
    emails   = optional(list(string), [])
    channels = optional(list(string), [])
  })
  default  = {}
  nullable = false
}
