// A small Google Cloud in a directory: one JSON file for each object. What it refuses is in refusals.go.
//
//	apis             APIs that are on, one a line; google_project_service adds to them
//	agents           Google's service agents that exist, one email a line; google_project_service_identity adds to them
//	deleted_queues   names of queues that were deleted, one a line
//	secret_versions  secrets that were made before, one `NAME NUMBER` a line
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const projectNumber = "123456789012"

type cloud struct {
	dir     string
	mu      sync.Mutex
	counter atomic.Int64
}

type object struct {
	Type       string         `json:"type"`
	Attributes map[string]any `json:"attributes"`
}

func (c *cloud) file(kind, id string) string {
	return filepath.Join(c.dir, "objects", fmt.Sprintf("%x.json", sha256.Sum256([]byte(kind+" "+id))))
}

func (c *cloud) has(kind, id string) bool {
	_, err := os.Stat(c.file(kind, id))
	return err == nil
}

func (c *cloud) put(kind string, attributes map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = os.MkdirAll(filepath.Join(c.dir, "objects"), 0o755)
	raw, _ := json.Marshal(object{kind, attributes})
	if err := os.WriteFile(c.file(kind, text(attributes["id"])), raw, 0o644); err != nil {
		panic(err)
	}
	switch kind {
	case "google_project_service":
		c.append("apis", text(attributes["service"]))
	case "google_project_service_identity":
		c.append("agents", text(attributes["email"]))
	}
}

func (c *cloud) remove(kind string, attributes map[string]any) {
	_ = os.Remove(c.file(kind, text(attributes["id"])))
	if kind == "google_cloud_tasks_queue" {
		c.append("deleted_queues", text(attributes["name"]))
	}
}

func (c *cloud) append(name, line string) {
	f, err := os.OpenFile(filepath.Join(c.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

func (c *cloud) lines(name string) []string {
	raw, _ := os.ReadFile(filepath.Join(c.dir, name))
	return strings.Fields(string(raw))
}

func (c *cloud) listed(name, line string) bool { return slices.Contains(c.lines(name), line) }

func (c *cloud) all() []object {
	var out []object
	paths, _ := filepath.Glob(filepath.Join(c.dir, "objects", "*.json"))
	for _, path := range paths {
		var o object
		if raw, err := os.ReadFile(path); err == nil && json.Unmarshal(raw, &o) == nil {
			out = append(out, o)
		}
	}
	return out
}

// users names what has `id` in one of its texts.
func (c *cloud) users(id string) []string {
	var out []string
	for _, o := range c.all() {
		if own := text(o.Attributes["id"]); own != id && mentions(o.Attributes, id) {
			out = append(out, own)
		}
	}
	return out
}

func mentions(v any, id string) bool {
	switch v := v.(type) {
	case string:
		return v == id || strings.HasSuffix(v, "/"+id) || strings.Contains(v, "\""+id+"\"")
	case []any:
		return slices.ContainsFunc(v, func(each any) bool { return mentions(each, id) })
	case map[string]any:
		for _, each := range v {
			if mentions(each, id) {
				return true
			}
		}
	}
	return false
}

// What an object is told apart by, in this order.
var keys = []string{
	"project", "location", "region", "key_ring", "crypto_key_id", "bucket", "secret", "map", "managed_zone", "service_account_id", "web_backend_service",
	"cloud_run_service_name", "name", "service", "account_id", "repository_id", "secret_id", "type", "role", "member",
}

// Objects that the API names itself.
var numbered = []string{
	"google_monitoring_alert_policy", "google_monitoring_notification_channel", "google_monitoring_uptime_check_config", "google_secret_manager_secret_version",
}

func (c *cloud) id(kind string, a map[string]any) string {
	switch kind {
	case "google_kms_key_ring":
		return fmt.Sprintf("projects/%s/locations/%s/keyRings/%s", a["project"], a["location"], a["name"])
	case "google_kms_crypto_key":
		return fmt.Sprintf("%s/cryptoKeys/%s", a["key_ring"], a["name"])
	}
	parts := []string{strings.TrimPrefix(kind, "google_")}
	for _, key := range keys {
		if s := text(a[key]); s != "" {
			parts = append(parts, s)
		}
	}
	if slices.Contains(numbered, kind) {
		parts = append(parts, fmt.Sprint(time.Now().UnixNano(), c.counter.Add(1)))
	}
	return strings.Join(parts, "/")
}

// computed is what the cloud decides about a new object, and answers to a data source.
func (c *cloud) computed(kind string, a map[string]any) map[string]any {
	id := text(a["id"])
	if id == "" {
		id = c.id(kind, a)
	}
	out := map[string]any{
		"id": id, "name": id, "generated_id": 4711, "address": "203.0.113.7", "uptime_check_id": id[strings.LastIndex(id, "/")+1:], "domain": a["domain"],
		"project": a["project"], "number": projectNumber, "version": "1",
	}
	switch kind {
	case "google_service_account":
		out["email"] = fmt.Sprintf("%s@%s.iam.gserviceaccount.com", a["account_id"], a["project"])
		out["member"] = "serviceAccount:" + text(out["email"])
		out["unique_id"] = fmt.Sprintf("%021d", time.Now().UnixNano())
	case "google_project_service_identity":
		host := map[string]string{"run": "serverless-robot-prod"}[strings.TrimSuffix(text(a["service"]), ".googleapis.com")]
		if host == "" {
			host = "gcp-sa-" + strings.TrimSuffix(text(a["service"]), ".googleapis.com")
		}
		out["email"] = fmt.Sprintf("service-%s@%s.iam.gserviceaccount.com", projectNumber, host)
	case "google_secret_manager_secret_version":
		out["version"] = fmt.Sprint(c.versions(text(a["secret"])) + 1)
	case "data.google_secret_manager_secret_version":
		out["version"] = c.newest(text(a["secret"]))
	case "data.google_storage_project_service_account":
		out["email_address"] = fmt.Sprintf("service-%s@gs-project-accounts.iam.gserviceaccount.com", projectNumber)
	}
	return out
}

func (c *cloud) versions(secret string) int {
	n := 0
	for _, o := range c.all() {
		if o.Type == "google_secret_manager_secret_version" && text(o.Attributes["secret"]) == secret {
			n++
		}
	}
	return n
}

// newest is the number of a secret's newest version that was made outside of Terraform, or nothing.
func (c *cloud) newest(secret string) string {
	number, words := "", c.lines("secret_versions")
	for i := 0; i+1 < len(words); i += 2 {
		if words[i] == secret {
			number = words[i+1]
		}
	}
	return number
}
