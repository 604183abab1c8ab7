"""What Google refuses in a new project because something was made, granted or switched on moments ago and is not known everywhere yet: words and
source. Each passes by itself within minutes."""

DISABLED = ("ERROR: (gcloud.{command}) PERMISSION_DENIED: {api} has not been used in project 123456789012 before or it is disabled. Enable it by visiting "
            "https://console.developers.google.com/apis/api/{api}/overview?project=123456789012 then retry. If you enabled this API recently, wait a few minutes for "
            "the action to propagate to our systems and retry.", "hashicorp/terraform-provider-google#6101, #11435")
CONCURRENT = ("ERROR: (gcloud.{command}) Resource in project [acme-infra:setIamPolicy] is the subject of a conflict: There were concurrent policy changes. "
              "Please retry the whole read-modify-write with exponential backoff.", "googleapis/google-cloud-cpp#4113, openshift/release#8023")
NO_ACCOUNT = ("ERROR: (gcloud.{command}) INVALID_ARGUMENT: Service account tidelock-build@acme-infra.iam.gserviceaccount.com does not exist.",
              "hashicorp/terraform-provider-google#15572")
SOURCE = ("ERROR: (gcloud.builds.submit) INVALID_ARGUMENT: could not resolve source: googleapi: Error 403: tidelock-build@acme-infra.iam.gserviceaccount.com does not have "
          "storage.objects.get access to the Google Cloud Storage object. Permission 'storage.objects.get' denied on resource (or it may not exist)., forbidden",
          "google-cloud-japan/sa-ml-workshop#54 (rights in a new project take a minute or two); Cloud Run's troubleshooting page")
ACT_AS_BUILD = ("ERROR: (gcloud.builds.submit) PERMISSION_DENIED: caller does not have permission to act as service account projects/acme-infra/serviceAccounts/"
                "tidelock-build@acme-infra.iam.gserviceaccount.com.", "Cloud Build's page on user-specified service accounts; runbooks that quote it")
ACT_AS = ("Permission 'iam.serviceaccounts.actAs' denied on service account tidelock-server@acme-infra.iam.gserviceaccount.com (or it may not exist).",
          "stefda/action-cloud-run#6, privacysandbox/aggregation-service#47")
SECRET = ("Revision 'tidelock-00001-abc' is not ready and cannot serve traffic. spec.template.spec.containers[0].env[12].value_from.secret_key_ref.name: Permission denied on "
          "secret: projects/123456789012/secrets/tidelock-gh-token/versions/1 for Revision service account tidelock-server@acme-infra.iam.gserviceaccount.com. The service "
          "account used must be granted the 'Secret Manager Secret Accessor' role (roles/secretmanager.secretAccessor) at the secret, project or higher level.",
          "sourcegraph/sourcegraph-public-snapshot#59045, getsentry/eng-pipes#893")
IMAGE = ("Google Cloud Run Service Agent service-123456789012@serverless-robot-prod.iam.gserviceaccount.com must have permission to read the image, "
         "europe-west1-docker.pkg.dev/acme-infra/tidelock-build/tidelock. Ensure that the provided container image URL is correct and that the above account has permission "
         "to access the image. If you just enabled the Cloud Run API, the permissions might take a few minutes to propagate.", "Cloud Run's troubleshooting page")
TOKENS = ("Error 403: Google Cloud Run Service Agent does not have permission to get access tokens for the service account tidelock-server@acme-infra.iam.gserviceaccount.com. "
          "Please give service-123456789012@serverless-robot-prod.iam.gserviceaccount.com permission iam.serviceAccounts.getAccessToken on the service account.",
          "GoogleCloudPlatform/terraform-google-cloud-run#28")
METRIC = ("Error 404: Cannot find metric(s) that match type = \"logging.googleapis.com/user/tidelock-heartbeat\". If a metric was created recently, it could take up to 10 "
          "minutes to become available. Please try again soon.", "hashicorp/terraform-provider-google#11102")
AGENT = ("Error 400: Service account service-123456789012@gcp-sa-iap.iam.gserviceaccount.com does not exist., badRequest", "hashicorp/terraform-provider-google#15572")
ACCOUNT = ("Error reading service account after creation: googleapi: Error 403: Permission iam.serviceAccounts.get is required to perform this operation on service account "
           "projects/acme-infra/serviceAccounts/tidelock-server@acme-infra.iam.gserviceaccount.com., forbidden", "hashicorp/terraform-provider-google#10227, #15042")
OFF = ("Error 403: artifactregistry.googleapis.com has not been used in project 123456789012 before or it is disabled., accessNotConfigured",
       "hashicorp/terraform-provider-google#6101")

ALL = [DISABLED, CONCURRENT, NO_ACCOUNT, SOURCE, ACT_AS_BUILD, ACT_AS, SECRET, IMAGE, TOKENS, METRIC, AGENT, ACCOUNT, OFF]


def refusals(tool, words):
    """Those that a call may meet, in order."""
    command = " ".join(words)
    if tool == "terraform":
        return [OFF, AGENT, ACCOUNT, METRIC, TOKENS, IMAGE, SECRET, ACT_AS]
    if command.startswith("builds submit"):
        return [DISABLED, ACT_AS_BUILD, SOURCE]
    if "add-iam-policy-binding" in command:
        return [NO_ACCOUNT, CONCURRENT]
    if command.startswith("run jobs"):
        return [DISABLED, TOKENS, IMAGE, SECRET, ACT_AS]
    if command.startswith(("services", "projects", "auth", "billing")):
        return []
    return [DISABLED]
