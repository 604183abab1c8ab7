terraform {
  # A backend of its own: nobody of another project needs access to it.
  backend "local" {
    path          = "/var/lib/states/network.tfstate"
    workspace_dir = "/var/lib/states/network"
  }
}

module "record" {
  source = "../../modules/record"
  name   = "network in ${terraform.workspace}"
}
