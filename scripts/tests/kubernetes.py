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


def main():
    built = {name: list(yaml.safe_load_all(open(file))) for name, file in (a.split("=", 1) for a in sys.argv[1:])}
    for name, docs in built.items():
        events, pages = of(docs, "Ingress", "tidelock-events"), of(docs, "Ingress", "tidelock-pages")
        paths = [(p["path"], p["pathType"]) for r in events["spec"]["rules"] for p in r["http"]["paths"]]
        check(f"{name}: exactly /events is open", paths == [("/events", "Exact")], paths)
        check(f"{name}: /events leads to the server", events["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] == "tidelock")
        target = pages["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"]
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
        check(f"{name}: time to hand over", workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 12)
        check(f"{name}: the image has a digest", "@sha256:" in container["image"], container["image"])
        metadata_server = any("169.254.169.254/32" in str(d) for d in docs if d["kind"] == "NetworkPolicy")
        check(f"{name}: the metadata server is open only where the bucket needs it", metadata_server == (name == "bucket"))
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
