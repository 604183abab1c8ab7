terraform {
  # A backend of its own: nobody of another project needs access to it.
  backend "local" {
    path          = "/var/lib/states/billing.tfstate"
    workspace_dir = "/var/lib/states/billing"
  }
}

module "record" {
  source = "../../modules/record"
  name   = "billing in ${terraform.workspace}"
}
