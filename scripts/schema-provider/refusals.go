// What the real cloud, or the provider in front of it, refuses, in its words; each with the place that tells of it. Nothing here is from
// memory: what no source tells of is not refused.
package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

type refusal struct {
	name   string
	source string
	steps  []string // create, update, delete, read, after create
	words  func(c *cloud, kind string, a map[string]any) string
}

func (c *cloud) refuse(step, kind string, a map[string]any) []*tfprotov5.Diagnostic {
	for _, r := range refusals {
		if !slices.Contains(r.steps, step) {
			continue
		}
		if words := r.words(c, kind, a); words != "" {
			return []*tfprotov5.Diagnostic{{Severity: tfprotov5.DiagnosticSeverityError, Summary: words, Detail: r.name + ": " + r.source}}
		}
	}
	return nil
}

var refusals = []refusal{
	{
		name:   "an API that is off",
		source: "hashicorp/terraform-provider-google#6101, #11435; GoogleCloudPlatform/k8s-config-connector#135 (switching on needs Resource Manager)",
		steps:  []string{"create", "update", "read"},
		words: func(c *cloud, kind string, a map[string]any) string {
			api := apiOf(kind, a)
			if api == "" || c.listed("apis", api) {
				return ""
			}
			return fmt.Sprintf("Error 403: %s has not been used in project %s before or it is disabled., accessNotConfigured", api, projectNumber)
		},
	},
	{
		name:   "the same name twice",
		source: "Google API design guide: 409 ALREADY_EXISTS",
		steps:  []string{"create"},
		words: func(c *cloud, kind string, a map[string]any) string {
			if strings.HasSuffix(kind, "_iam_member") || strings.HasPrefix(kind, "google_project_service") || kind == "google_iap_settings" || slices.Contains(numbered, kind) {
				return ""
			}
			if id := c.id(kind, a); c.has(kind, id) {
				return fmt.Sprintf("Error 409: The resource '%s' already exists, alreadyExists", id)
			}
			return ""
		},
	},
	{
		name:   "a service whose image is not there, or that fails its probe",
		source: "GoogleCloudPlatform/magic-modules mmv1/products/cloudrunv2/Service.yaml, taint_resource_on_failed_create",
		steps:  []string{"after create"},
		words: func(_ *cloud, kind string, a map[string]any) string {
			if kind == "google_cloud_run_v2_service" && anyText(a, func(s string) bool { return strings.HasSuffix(s, ":missing") }) {
				return fmt.Sprintf("Error waiting to create Service: Error code 5, message: Revision '%s-00001-abc' is not ready and cannot serve traffic. Image not found.", a["name"])
			}
			return ""
		},
	},
	{
		name:   "a protected service",
		source: "chainguard-dev/edu#3213: the replacement of a tainted service is refused for ever",
		steps:  []string{"delete"},
		words: func(_ *cloud, kind string, a map[string]any) string {
			if kind == "google_cloud_run_v2_service" && a["deletion_protection"] == true {
				return "cannot destroy service without setting deletion_protection=false and running `terraform apply`"
			}
			return ""
		},
	},
	{
		name:   "a metric that was made moments ago",
		source: "hashicorp/terraform-provider-google#11102; GoogleCloudPlatform/cloud-foundation-fabric#3739; #20491 (disable_metric_validation)",
		steps:  []string{"create", "update"},
		words:  newMetric,
	},
	{
		name:   "a service agent that does not exist",
		source: "hashicorp/terraform-provider-google#15572; GoogleCloudPlatform/cloud-foundation-fabric#1381",
		steps:  []string{"create", "update"},
		words: func(c *cloud, kind string, a map[string]any) string {
			email := strings.TrimPrefix(text(a["member"]), "serviceAccount:")
			ours := strings.Contains(email, "@gcp-sa-iap.") || strings.Contains(email, "@gcp-sa-artifactregistry.")
			if !strings.HasSuffix(kind, "_iam_member") || !ours || c.listed("agents", email) {
				return ""
			}
			return fmt.Sprintf("Error 400: Service account %s does not exist., badRequest", email)
		},
	},
	{
		name:   "something in use",
		source: "sourcegraph/sourcegraph#60367; hashicorp/terraform-provider-google#20206, #12513, #10337 (channel), #10176 (uptime check)",
		steps:  []string{"delete"},
		words:  inUse,
	},
	{
		name:   "ephemeral disk without its launch stage, or beyond the quota",
		source: "docs.cloud.google.com/run/docs/configuring/services/ephemeral-disk",
		steps:  []string{"create", "update"},
		words:  ephemeralDisk,
	},
	{
		name:   "the project's id where IAP wants its number",
		source: "hashicorp/terraform-provider-google#23092",
		steps:  []string{"create"},
		words: func(_ *cloud, kind string, a map[string]any) string {
			if kind == "google_iap_web_cloud_run_service_iam_member" && text(a["project"]) != projectNumber {
				return "Error 404: Requested entity was not found., notFound"
			}
			return ""
		},
	},
	{
		name:   "a bucket with objects",
		source: "registry.terraform.io/providers/hashicorp/google/latest/docs/resources/storage_bucket, force_destroy",
		steps:  []string{"delete"},
		words: func(_ *cloud, kind string, a map[string]any) string {
			if kind == "google_storage_bucket" && a["force_destroy"] != true {
				return fmt.Sprintf("Error trying to delete bucket %s containing objects without `force_destroy` set to true", a["name"])
			}
			return ""
		},
	},
	{
		name:   "a queue of a name that another had moments ago",
		source: "m-lab/etl#556; GoogleCloudPlatform/python-docs-samples#4034; aertje/cloud-tasks-emulator emulator.go",
		steps:  []string{"create"},
		words: func(c *cloud, kind string, a map[string]any) string {
			if kind == "google_cloud_tasks_queue" && c.listed("deleted_queues", text(a["name"])) {
				return "Error 400: The queue cannot be created because a queue with this name existed too recently."
			}
			return ""
		},
	},
	{
		name:   "a secret without a version",
		source: "docs.cloud.google.com/run/docs/configuring/services/secrets: the deployment fails where a version is missing",
		steps:  []string{"read"},
		words: func(c *cloud, kind string, a map[string]any) string {
			if kind == "data.google_secret_manager_secret_version" && c.newest(text(a["secret"])) == "" {
				return fmt.Sprintf("Error 404: Secret [projects/%s/secrets/%s] not found or has no versions., notFound", projectNumber, a["secret"])
			}
			return ""
		},
	},
}

var apis = map[string]string{
	"google_artifact_registry_": "artifactregistry", "google_certificate_manager_": "certificatemanager", "google_cloud_run_v2_": "run",
	"google_cloud_scheduler_": "cloudscheduler", "google_cloud_tasks_": "cloudtasks",
	"google_compute_": "compute", "google_dns_": "dns", "google_iap_": "iap", "google_kms_": "cloudkms", "google_logging_": "logging",
	"google_monitoring_": "monitoring", "google_secret_manager_": "secretmanager", "google_service_account": "iam", "google_storage_": "storage",
	"data.google_secret_manager_": "secretmanager", "data.google_storage_": "storage",
}

func apiOf(kind string, a map[string]any) string {
	switch {
	case kind == "google_project_service" && text(a["service"]) == "cloudresourcemanager.googleapis.com":
		return "serviceusage.googleapis.com"
	case kind == "google_project_service", kind == "data.google_project", strings.HasPrefix(kind, "google_project_iam_"):
		return "cloudresourcemanager.googleapis.com"
	case kind == "google_cloud_run_v2_service" && anyKey(a, "use_default"):
		return "binaryauthorization.googleapis.com"
	}
	for prefix, api := range apis {
		if strings.HasPrefix(kind, prefix) {
			return api + ".googleapis.com"
		}
	}
	return ""
}

var ownMetric = regexp.MustCompile(`logging\.googleapis\.com/user/[A-Za-z0-9_-]+|logging_googleapis_com:user_[a-z0-9_]+`)

// All metrics of this cloud are new: a test takes less than ten minutes.
func newMetric(_ *cloud, kind string, a map[string]any) string {
	conditions, _ := a["conditions"].([]any)
	for _, condition := range conditions {
		name := ""
		if kind != "google_monitoring_alert_policy" || !anyText(condition, func(s string) bool { name = ownMetric.FindString(s); return name != "" }) {
			continue
		}
		if query, ok := condition.(map[string]any)["condition_prometheus_query_language"].([]any); ok && len(query) == 1 && query[0].(map[string]any)["disable_metric_validation"] == true {
			continue
		}
		return fmt.Sprintf("Error 404: Cannot find metric(s) that match type = \"%s\". If a metric was created recently, it could take up to 10 minutes to become available. Please try again soon.", name)
	}
	return ""
}

var guarded = []string{
	"google_certificate_manager_certificate", "google_certificate_manager_certificate_map", "google_certificate_manager_dns_authorization",
	"google_compute_backend_service", "google_compute_global_address", "google_compute_managed_ssl_certificate",
	"google_compute_region_network_endpoint_group", "google_compute_security_policy", "google_compute_ssl_policy",
	"google_compute_target_http_proxy", "google_compute_target_https_proxy", "google_compute_url_map",
	"google_monitoring_notification_channel", "google_monitoring_uptime_check_config",
}

func inUse(c *cloud, kind string, a map[string]any) string {
	if !slices.Contains(guarded, kind) {
		return ""
	}
	id := text(a["id"])
	users := c.users(id)
	if check := text(a["uptime_check_id"]); check != "" {
		users = append(users, slices.DeleteFunc(c.users(check), func(user string) bool { return user == id })...)
	}
	switch {
	case len(users) == 0:
		return ""
	case kind == "google_monitoring_notification_channel":
		return fmt.Sprintf("Error 400: Could not delete %q because it is still being referenced by: %q", id, users[0])
	case kind == "google_monitoring_uptime_check_config":
		return fmt.Sprintf("Error 400: Cannot delete check %s. One or more alerting policies is using it.", id)
	}
	return fmt.Sprintf("Error 400: The %s resource '%s' is already being used by '%s', resourceInUseByAnotherResource", strings.TrimPrefix(kind, "google_compute_"), id, users[0])
}

func ephemeralDisk(_ *cloud, kind string, a map[string]any) string {
	template, _ := a["template"].([]any)
	if kind != "google_cloud_run_v2_service" || len(template) != 1 {
		return ""
	}
	volumes := template[0].(map[string]any)["volumes"]
	if !anyText(volumes, func(s string) bool { return s == "DISK" }) {
		return ""
	}
	if a["launch_stage"] != "BETA" {
		return "Error 400: Violation in CREATE operation: the launch stage of ephemeral disk is BETA, set it, badRequest"
	}
	size := 0
	anyText(volumes, func(s string) bool {
		_, err := fmt.Sscanf(s, "%dGi", &size)
		return err == nil && strings.HasSuffix(s, "Gi") && size > 9
	})
	if size > 9 { // 10 GB are 9.3 GiB
		return "Error 429: Quota exceeded for ephemeral disk of an instance: limit 10 GB"
	}
	return ""
}

func anyText(v any, holds func(string) bool) bool {
	switch v := v.(type) {
	case string:
		return holds(v)
	case []any:
		return slices.ContainsFunc(v, func(each any) bool { return anyText(each, holds) })
	case map[string]any:
		for _, each := range v {
			if anyText(each, holds) {
				return true
			}
		}
	}
	return false
}

func anyKey(v any, key string) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(each any) bool { return anyKey(each, key) })
	case map[string]any:
		for name, each := range v {
			if name == key && each == true || anyKey(each, key) {
				return true
			}
		}
	}
	return false
}

// Arguments whose change the provider answers with a replacement, beside the names of things (provider's documents of each resource).
func replacedBy(kind string, next map[string]tftypes.Value) []string {
	out := []string{"name", "location", "region", "project", "account_id", "repository_id", "secret_id", "secret", "service"}
	if strings.HasSuffix(kind, "_iam_member") {
		for name := range next {
			if name != "id" && name != "etag" {
				out = append(out, name)
			}
		}
	}
	return append(out, map[string][]string{
		"google_artifact_registry_repository":              {"format", "mode", "kms_key_name"},
		"google_certificate_manager_certificate":           {"managed"},
		"google_certificate_manager_certificate_map_entry": {"hostname", "map"},
		"google_certificate_manager_dns_authorization":     {"domain"},
		"google_compute_global_address":                    {"ip_version"},
		"google_compute_global_forwarding_rule":            {"ip_address", "port_range"},
		"google_compute_managed_ssl_certificate":           {"managed"},
		"google_compute_region_network_endpoint_group":     {"cloud_run"},
		"google_dns_record_set":                            {"type"},
		"google_monitoring_uptime_check_config":            {"monitored_resource"},
		"google_secret_manager_secret_version":             {"secret_data_wo_version"},
	}[kind]...)
}
