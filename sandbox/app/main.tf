terraform {
  required_version = ">= 1.4"

  backend "local" {
    path = "@STATE@/app.tfstate"
  }
}

module "shop" {
  source = "../modules/service"

  name     = "shop"
  replicas = 2
}

module "billing" {
  source = "../modules/service"

  name     = "billing"
  replicas = 1
}
