#!/usr/bin/env python3
"""What the manifests promise, read from built overlays: kubernetes.py NAME=FILE…"""
import sys

import yaml

PASSED, FAILED = [], []


def check(name, condition, detail=""):
    (PASSED if condition else FAILED).append(name)
    if not condition:
        print(f"FAILED {name} {detail}")


def of(docs, kind, name):
    return next((d for d in docs if d["kind"] == kind and d["metadata"]["name"] == name), None)


def reaches(policy, port):
    """Where a policy lets a pod reach a port."""
    rules = policy["spec"].get("egress", [])
    return [to for rule in rules if any(p["port"] == port for p in rule["ports"]) for to in rule["to"]]


def same_pod(deployment, stateful_set):
    """The overlays' pods without what has to differ: the bucket's address, the data volume and its quota."""
    out = []
    for workload in (deployment, stateful_set):
        spec = yaml.safe_load(yaml.safe_dump(workload["spec"]["template"]["spec"]))
        spec["volumes"] = [v for v in spec["volumes"] if v["name"] != "data"]
        differ = ("TIDELOCK_BUCKET", "TIDELOCK_SCRATCH_QUOTA_MIB")
        spec["containers"][0]["env"] = [e for e in spec["containers"][0]["env"] if e["name"] not in differ]
        out.append(spec)
    return out[0] == out[1]


def executors(docs):
    rights = {tuple(rule["resources"]): set(rule["verbs"]) for rule in of(docs, "Role", "tidelock-executors")["rules"]}
    check("executors: no more rights than docs/executors.md says", rights == {
        ("jobs",): {"create", "get", "list", "watch", "delete"}, ("pods",): {"get", "list", "watch"}}, rights)
    binding = of(docs, "RoleBinding", "tidelock-executors")
    check("executors: the rights are the server's", [s["name"] for s in binding["subjects"]] == ["tidelock"] and binding["roleRef"]["name"] == "tidelock-executors")
    files = next(d for d in docs if d["kind"] == "ConfigMap" and d["metadata"]["name"].startswith("tidelock-"))["data"]
    named = {name: e["template"] for name, e in yaml.safe_load(files["repos.yaml"])["executors"].items()}
    check("executors: each template is beside repos.yaml", set(named.values()) <= files.keys(), named)
    policy = of(docs, "NetworkPolicy", "tidelock-jobs")
    check("executors: the policy is for all pods of jobs", policy["spec"]["podSelector"] == {"matchExpressions": [{"key": "tidelock/executor", "operator": "Exists"}]})
    check("executors: jobs reach nothing private", not any(p["port"] == 6443 for rule in policy["spec"]["egress"] for p in rule["ports"]))
    for template in (yaml.safe_load(files[file]) for file in named.values()):
        pod = template["spec"]["template"]["spec"]
        account = of(docs, "ServiceAccount", pod["serviceAccountName"])
        check(f"executors: {pod['serviceAccountName']} has no token of the cluster", account["automountServiceAccountToken"] is False)
        check(f"executors: {pod['serviceAccountName']} is restricted", pod["securityContext"]["runAsNonRoot"] and pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"])


def main():
    built = {name: list(yaml.safe_load_all(open(file))) for name, file in (a.split("=", 1) for a in sys.argv[1:])}
    for name, docs in built.items():
        ingresses = [d for d in docs if d["kind"] == "Ingress"]
        check(f"{name}: one Ingress, which is one load balancer", len(ingresses) == 1)
        spec, annotations = ingresses[0]["spec"], ingresses[0]["metadata"].get("annotations", {})
        named = annotations.get("kubernetes.io/ingress.class") == "gce" if name == "gke" else spec.get("ingressClassName") == "nginx"
        check(f"{name}: the Ingress names its class", named and ("ingressClassName" in spec) != ("kubernetes.io/ingress.class" in annotations))
        paths = [(p["path"], p["pathType"]) for r in spec["rules"] for p in r["http"]["paths"]]
        check(f"{name}: /events is a route of its own, exactly", paths == [("/events", "Exact"), ("/", "Prefix")], paths)
        check(f"{name}: /events leads to the server", spec["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] == "tidelock")
        target = spec["rules"][0]["http"]["paths"][1]["backend"]["service"]["name"]
        check(f"{name}: pages lead to sign-on where there is one", target == ("oauth2-proxy" if "sign-on" in name else "tidelock"), target)
        settings = yaml.safe_load(next(d for d in docs if d["kind"] == "ConfigMap" and d["metadata"]["name"].startswith("tidelock-"))["data"]["tidelock.yaml"])
        check(f"{name}: pages ask for a login", settings["web-basic-auth"] is True)
        check(f"{name}: the controller's address is the client's", settings["trusted-proxy-hops"] == 1 and settings["webhook-allowlist"])
        check(f"{name}: no secret is in a manifest", not any(d["kind"] == "Secret" for d in docs))
        workload = next(d for d in docs if d["kind"] in ("Deployment", "StatefulSet") and d["metadata"]["name"] == "tidelock")
        check(f"{name}: one replica", workload["spec"]["replicas"] == 1)
        labels = workload["spec"]["template"]["metadata"]["labels"]
        policy = of(docs, "NetworkPolicy", "tidelock")["spec"]["podSelector"]["matchLabels"]
        check(f"{name}: the network policy is for the pod", policy.items() <= labels.items())
        selector = of(docs, "Service", "tidelock")["spec"]["selector"]
        check(f"{name}: the service leads to the pod", selector.items() <= labels.items())
        container = workload["spec"]["template"]["spec"]["containers"][0]
        check(f"{name}: a standby is ready", container["readinessProbe"]["httpGet"]["path"] == "/healthz")
        grace = next(e["value"] for e in container["env"] if e["name"] == "TIDELOCK_SHUTDOWN_GRACE")
        check(f"{name}: the pod waits longer than its server",
              f"{workload['spec']['template']['spec']['terminationGracePeriodSeconds'] - 5}s" == grace, grace)
        for policy in (d for d in docs if d["kind"] == "NetworkPolicy" and d["metadata"]["name"] in ("tidelock", "oauth2-proxy")):
            answer = {p["ipBlock"]["cidr"] for p in reaches(policy, 53) if "ipBlock" in p}
            check(f"{name}: {policy['metadata']['name']} asks Cloud DNS and NodeLocal DNSCache", answer == {"169.254.169.254/32", "169.254.20.10/32"}, answer)
            check(f"{name}: the controllers of {policy['metadata']['name']} are named", "ingress-nginx" in str(policy["spec"]["ingress"]))
        check(f"{name}: the image has a digest", "@sha256:" in container["image"], container["image"])
        # Variables that the server does not know stop nothing and do nothing: each is of a host that the settings name.
        expected = {"gh-user": ["TIDELOCK_GH_TOKEN", "TIDELOCK_GH_WEBHOOK_SECRET"], "gh-app-id": ["TIDELOCK_GH_APP_KEY", "TIDELOCK_GH_WEBHOOK_SECRET"],
                    "azuredevops-user": ["TIDELOCK_AZUREDEVOPS_TOKEN", "TIDELOCK_AZUREDEVOPS_WEBHOOK_PASSWORD"]}
        has = sorted(e["name"] for e in container["env"] if e["name"].startswith(("TIDELOCK_GH_", "TIDELOCK_AZUREDEVOPS_")))
        check(f"{name}: secrets of the hosts that are set, and no others", has == sorted(v for s, names in expected.items() if s in settings for v in names), has)
        check(f"{name}: an App, or an account", not {"gh-user", "gh-app-id"} <= settings.keys())
        shown = spec["rules"][0].get("host"), next((h for t in spec.get("tls", []) for h in t["hosts"]), None)
        check(f"{name}: one name everywhere", set(shown) == {settings["atlantis-url"].removeprefix("https://")}, shown)
        metadata_server = any("169.254.169.254/32" in str(reaches(d, 80)) for d in docs if d["kind"] == "NetworkPolicy")
        check(f"{name}: the metadata server is open only where the bucket needs it", metadata_server == name.startswith(("bucket", "gke")))
        token = workload["spec"]["template"]["spec"]["automountServiceAccountToken"]
        check(f"{name}: a token of the cluster only where the server starts jobs", token is ("executors" in name))
    if "bucket-with-executors" in built:
        executors(built["bucket-with-executors"])
    if "gke" in built:
        docs = built["gke"]
        labels = of(docs, "Deployment", "tidelock")["spec"]["template"]["metadata"]["labels"]
        for kind in ("PodMonitor", "PodDisruptionBudget"):
            check(f"gke: the {kind} is for the pod", of(docs, kind, "tidelock")["spec"]["selector"]["matchLabels"].items() <= labels.items())
        monitored = of(docs, "PodMonitor", "tidelock")["spec"]["podMetricsEndpoints"][0]
        check("gke: metrics are scraped with the login", monitored["port"] == "http" and set(monitored["basicAuth"]) == {"username", "password"})
        check("gke: the image is the overlay's", "project/tidelock/tidelock@sha256:1111" in str(of(docs, "Deployment", "tidelock")))
        check("gke: the load balancer comes in", all(r in str(of(docs, "NetworkPolicy", "tidelock")["spec"]["ingress"]) for r in ("35.191.0.0/16", "130.211.0.0/22")))
    check("the rollout surges, so that a standby is there first",
          of(built["bucket"], "Deployment", "tidelock")["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0})
    data = next(v for v in of(built["bucket"], "Deployment", "tidelock")["spec"]["template"]["spec"]["volumes"] if v["name"] == "data")
    env = of(built["bucket"], "Deployment", "tidelock")["spec"]["template"]["spec"]["containers"][0]["env"]
    quota = next(e["value"] for e in env if e["name"] == "TIDELOCK_SCRATCH_QUOTA_MIB")
    check("the quota is the volume's limit", data["emptyDir"]["sizeLimit"] == f"{int(quota) // 1024}Gi", quota)
    check("both overlays run the same pod", same_pod(of(built["bucket"], "Deployment", "tidelock"), of(built["volume"], "StatefulSet", "tidelock")))
    print(f"kubernetes: {len(PASSED)} passed, {len(FAILED)} failed")
    sys.exit(1 if FAILED else 0)


main()
