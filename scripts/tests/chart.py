#!/usr/bin/env python3
"""What the chart makes of several values: chart.py HELM DIRECTORY. Leaves DIRECTORY/chart-NAME.yaml, without what needs definitions of others."""
import base64
import concurrent.futures
import json
import pathlib
import subprocess
import sys

import yaml

HELM, OUT = sys.argv[1], pathlib.Path(sys.argv[2])
CHART = pathlib.Path(__file__).resolve().parents[2] / "charts/tidelock"
PASSED, FAILED = [], []
LEAST = {"orgAllowlist": "github.com/acme/*", "github": {"user": "bot", "token": "t0ken", "secret": "s3cret"}, "ingress": {"host": "tf.acme.test"},
         "image": {"tag": "0.1.0"}}
EXISTING = {"github": {"user": "bot", "token": None, "secret": None}, "vcsSecretName": "mine", "basicAuthSecretName": "login", "apiSecretName": "api"}

# As somebody has them for Atlantis' chart.
ATLANTIS = """
orgAllowlist: github.com/acme/*
atlantisUrl: https://atlantis.acme.test
logLevel: warn
github: {user: bot, hostname: git.acme.test}
vcsSecretName: atlantis-vcs
repoConfig: |
  ---
  repos:
  - id: /.*/
    apply_requirements: [approved]
config: |
  ---
  checkout-strategy: merge
defaultTFVersion: 1.11.4
enableDiffMarkdownFormat: true
allowDraftPRs: true
basicAuth: {username: people, password: pass}
api: {secret: api-secret}
image: {repository: registry.acme.test/tidelock, tag: v1}
imagePullSecrets: [pull]
replicaCount: 1
atlantisDataDirectory: /atlantis-data
volumeClaim: {enabled: true, dataStorage: 50Gi, storageClassName: fast, accessModes: [ReadWriteOnce]}
service: {type: NodePort, port: 80, targetPort: 4141, nodePort: 30080, annotations: {a: b}}
ingress:
  enabled: true
  ingressClassName: nginx
  annotations: {kubernetes.io/tls-acme: "true"}
  path: /
  pathType: Prefix
  host: atlantis.acme.test
  tls: [{secretName: tls, hosts: [atlantis.acme.test]}]
webhook_ingress:
  enabled: true
  ingressClassName: public
  path: /events
  host: hooks.acme.test
environment: {ATLANTIS_PARALLEL_PLAN: true, TF_LOG: warn}
environmentSecrets: [{name: TF_VAR_db, secretKeyRef: {name: db, key: password}}]
environmentRaw: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
loadEnvFromSecrets: [more]
loadEnvFromConfigMaps: [less]
extraVolumes: [{name: cache, emptyDir: {}}]
extraVolumeMounts: [{name: cache, mountPath: /cache}]
extraArgs: [--disable-autoplan]
initContainers: [{name: first, image: "busybox:1"}]
initConfig: {enabled: true, script: "#!/bin/sh\\ntrue\\n"}
extraContainers: [{name: beside, image: "busybox:1"}]
googleServiceAccountSecrets: [{name: google, secretName: google-key}]
resources: {requests: {cpu: 500m, memory: 1Gi}, limits: {memory: 2Gi}}
nodeSelector: {disk: ssd}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {a: b}}}]
serviceAccount: {create: true, mount: true, name: runner, annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/r"}}
podTemplate: {annotations: {p: q}, labels: {r: s}}
statefulSet: {labels: {t: u}, securityContext: {fsGroup: 1000, runAsUser: 100}}
hostAliases: [{ip: 10.0.0.1, hostnames: [git.acme.test]}]
dnsConfig: {searches: [acme.test]}
lifecycle: {preStop: {exec: {command: ["true"]}}}
terminationGracePeriodSeconds: 1205
extraManifests: [{apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-extra"}}]
lockingDbType: boltdb
redis: {}
gitlab: {}
gitea: {}
bitbucket: {}
test: {enabled: false}
"""


def check(name, condition, detail=""):
    (PASSED if condition else FAILED).append(name)
    if not condition:
        print(f"FAILED {name} {detail}")


def merged(*values):
    out = {}
    for value in values:
        for key, inner in value.items():
            out[key] = merged(out[key], inner) if isinstance(inner, dict) and isinstance(out.get(key), dict) else inner
    return out


def text_of(done):
    """The objects as one line of JSON with sorted keys."""
    return json.dumps([d for d in yaml.safe_load_all(done.stdout) if d], sort_keys=True)


def warnings_of(docs):
    workload = of(docs, "StatefulSet") or of(docs, "Deployment")
    return workload["metadata"].get("annotations", {}).get("tidelock/warnings", "")


def helm(values, release="tidelock"):
    command = [HELM, "template", release, str(CHART), "--namespace=tidelock", "--kube-version=1.34.0", "--values=-"]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True)


def rendered(name, *values):
    """The objects of one set of values, each once, in the release's namespace."""
    done = helm(merged(*values))
    check(f"{name}: is rendered", done.returncode == 0, done.stderr)
    docs = [d for d in yaml.safe_load_all(done.stdout) if d]
    names = [(d["kind"], d["metadata"]["name"]) for d in docs]
    check(f"{name}: each object once", len(set(names)) == len(names), names)
    # Definitions of these kinds are somebody else's.
    kept = [d for d in docs if not d["apiVersion"].startswith(("monitoring.", "gateway."))]
    (OUT / f"chart-{name}.yaml").write_text(yaml.safe_dump_all(kept))
    return docs


def of(docs, kind, name="tidelock"):
    return next((d for d in docs if d["kind"] == kind and d["metadata"]["name"] == name), None)


def pod_of(docs):
    workload = of(docs, "StatefulSet") or of(docs, "Deployment")
    pod = workload["spec"]["template"]
    return workload, pod, pod["spec"]["containers"][0]


def env_of(container):
    """Name to value, or to (Secret, key); of two the last counts."""
    def value(e):
        ref = e.get("valueFrom", {}).get("secretKeyRef")
        return (ref["name"], ref["key"]) if ref else e.get("value")
    return {e["name"]: value(e) for e in container["env"]}


def routes(ingress):
    return [(r.get("host"), p["path"], p["pathType"], p["backend"]["service"]["name"]) for r in ingress["spec"]["rules"] for p in r["http"]["paths"]]


def default_values():
    docs = rendered("least", LEAST)
    workload, pod, container = pod_of(docs)
    env = env_of(container)
    check("least: state is on the volume", workload["kind"] == "StatefulSet" and env["TIDELOCK_BUCKET"] == "file:///var/lib/tidelock/bucket")
    check("least: one replica", workload["spec"]["replicas"] == 1)
    check("least: no token of the cluster", pod["spec"]["automountServiceAccountToken"] is False)
    secret = of(docs, "Secret", "tidelock-webhook")["data"]
    check("least: the Secret has both", {k: base64.b64decode(v) for k, v in secret.items()} == {"github_token": b"t0ken", "github_secret": b"s3cret"})
    check("least: the server reads it", env["TIDELOCK_GH_TOKEN"] == ("tidelock-webhook", "github_token"))
    check("least: no secret in a variable", not any(v in ("t0ken", "s3cret") for v in env.values()))
    check("least: one Ingress with /events of its own", routes(of(docs, "Ingress")) == [
        ("tf.acme.test", "/events", "Exact", "tidelock"), ("tf.acme.test", "/", "Prefix", "tidelock")], routes(of(docs, "Ingress")))
    check("least: the pod waits five seconds longer than its server",
          env["TIDELOCK_SHUTDOWN_GRACE"] == "300s" and pod["spec"]["terminationGracePeriodSeconds"] == 305)
    check("least: an apply owns its projects", "repo_locks: {mode: strict}" in of(docs, "ConfigMap")["data"]["repos.yaml"])
    check("least: approved and mergeable", "approved, mergeable" in of(docs, "ConfigMap")["data"]["repos.yaml"])
    check("least: restricted", pod["spec"]["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"])
    selector = of(docs, "Service")["spec"]["selector"]
    check("least: the service leads to the pod", selector.items() <= pod["metadata"]["labels"].items())
    check("least: nothing else", {d["kind"] for d in docs} == {"StatefulSet", "Service", "ServiceAccount", "ConfigMap", "Secret", "Ingress", "Job"})
    check("least: nothing to warn of", warnings_of(docs) == "", warnings_of(docs))
    test = of(docs, "Job", "tidelock-test")
    check("least: helm test asks the Service", test["metadata"]["annotations"]["helm.sh/hook"] == "test" and "/dev/tcp/tidelock/80" in test["spec"]["template"]["spec"]["containers"][0]["command"][2])
    check("least: the Service does not lead to the test", not selector.items() <= test["spec"]["template"]["metadata"]["labels"].items())


def values_of_atlantis():
    docs = rendered("atlantis", yaml.safe_load(ATLANTIS))
    workload, pod, container = pod_of(docs)
    env, spec = env_of(container), pod["spec"]
    expected = {
        "TIDELOCK_REPO_ALLOWLIST": "github.com/acme/*", "TIDELOCK_ATLANTIS_URL": "https://atlantis.acme.test", "TIDELOCK_LOG_LEVEL": "warn",
        "TIDELOCK_GH_USER": "bot", "TIDELOCK_GH_HOSTNAME": "git.acme.test", "TIDELOCK_GH_TOKEN": ("atlantis-vcs", "github_token"),
        "TIDELOCK_GH_WEBHOOK_SECRET": ("atlantis-vcs", "github_secret"), "TIDELOCK_REPO_CONFIG": "/etc/tidelock/repos.yaml",
        "TIDELOCK_DEFAULT_TF_VERSION": "1.11.4", "TIDELOCK_ENABLE_DIFF_MARKDOWN_FORMAT": "true", "TIDELOCK_ALLOW_DRAFT_PRS": "true",
        "TIDELOCK_WEB_BASIC_AUTH": "true", "TIDELOCK_WEB_PASSWORD": ("tidelock-basic-auth", "password"),
        "TIDELOCK_API_SECRET": ("tidelock-api", "apisecret"), "TIDELOCK_DATA_DIR": "/atlantis-data", "HOME": "/atlantis-data",
        "TIDELOCK_BUCKET": "file:///atlantis-data/bucket", "TIDELOCK_SHUTDOWN_GRACE": "1200s",
        "ATLANTIS_PARALLEL_PLAN": "true", "TF_LOG": "warn", "TF_VAR_db": ("db", "password"),
    }
    for name, value in expected.items():
        check(f"atlantis: {name}", env.get(name) == value, env.get(name))
    check("atlantis: tools of initConfig are on the PATH", env["PATH"].startswith("/plugins:/usr"))
    check("atlantis: its script runs first", [c["name"] for c in spec["initContainers"]] == ["init-config", "first"])
    check("atlantis: config", container["args"] == ["server", "--config=/etc/tidelock/tidelock.yaml", "--disable-autoplan"], container["args"])
    check("atlantis: config's text", "checkout-strategy: merge" in of(docs, "ConfigMap")["data"]["tidelock.yaml"])
    check("atlantis: image", container["image"] == "registry.acme.test/tidelock:v1" and spec["imagePullSecrets"] == [{"name": "pull"}])
    check("atlantis: envFrom", container["envFrom"] == [{"secretRef": {"name": "more"}}, {"configMapRef": {"name": "less"}}])
    claim = workload["spec"]["volumeClaimTemplates"][0]["spec"]
    check("atlantis: claim", (claim["storageClassName"], claim["accessModes"], claim["resources"]["requests"]["storage"]) == ("fast", ["ReadWriteOnce"], "50Gi"))
    mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
    for path in ("/cache", "/plugins", "/atlantis-data", "/var/secrets/google", "/etc/tidelock"):
        check(f"atlantis: {path} is mounted", path in mounts, mounts)
    for key in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "hostAliases", "dnsConfig"):
        check(f"atlantis: {key}", spec.get(key) == yaml.safe_load(ATLANTIS)[key])
    check("atlantis: lifecycle and resources", container["lifecycle"]["preStop"] and container["resources"]["limits"]["memory"] == "2Gi")
    check("atlantis: annotations and labels", pod["metadata"]["annotations"]["p"] == "q" and pod["metadata"]["labels"]["r"] == "s")
    check("atlantis: the account", spec["serviceAccountName"] == "runner" and "eks.amazonaws.com/role-arn" in str(of(docs, "ServiceAccount", "runner")))
    check("atlantis: the token is there where it is asked for", spec["automountServiceAccountToken"] is True)
    check("atlantis: service", of(docs, "Service")["spec"]["type"] == "NodePort" and of(docs, "Service")["spec"]["ports"][0]["nodePort"] == 30080)
    check("atlantis: pages", routes(of(docs, "Ingress")) == [("atlantis.acme.test", "/", "Prefix", "tidelock")])
    hook = of(docs, "Ingress", "tidelock-secondary")
    check("atlantis: webhook_ingress", routes(hook) == [("hooks.acme.test", "/events", "Exact", "tidelock")] and hook["spec"]["ingressClassName"] == "public")
    check("atlantis: extraManifests are templates", of(docs, "ConfigMap", "tidelock-extra"))


def nested(flat):
    out = {}
    for path, value in flat.items():
        *parents, name = path.split(".")
        inside = out
        for parent in parents:
            inside = inside.setdefault(parent, {})
        inside[name] = value
    return out


def every_key_of_atlantis():
    """The whole values file of Atlantis' chart, and each of its keys: an equivalent, a named warning, or a refusal that says what to do."""
    keys = yaml.safe_load((pathlib.Path(__file__).parent / "atlantis-values.yaml").read_text())
    defaults = nested({path: key["is"] for path, key in keys.items() if "is" in key and (key["is"] != {} or not any(k.startswith(f"{path}.") for k in keys))})
    least = merged(defaults, {"orgAllowlist": LEAST["orgAllowlist"], "github": LEAST["github"], "image": {"digest": "sha256:" + "aa" * 32}})
    whole = helm(least)
    check("atlantis' defaults: rendered as they are", whole.returncode == 0, whole.stderr)
    before = text_of(whole)
    docs = rendered("atlantis-defaults", least)
    check("atlantis' defaults: what is not the same is named", all(name in warnings_of(docs) for name in ("image:", "ingress.host:")), warnings_of(docs))
    check("atlantis' defaults: nothing else is", len(warnings_of(docs).splitlines()) == 2, warnings_of(docs))

    def one(item):
        path, key = item
        if "set" not in key:
            return
        done = helm(merged(least, key.get("with", {}), nested({path: key["set"]})))
        if "refused" in key:
            check(f"atlantis' {path}: refused", done.returncode != 0 and key["refused"] in done.stderr, done.stderr)
            return
        check(f"atlantis' {path}: is rendered", done.returncode == 0, done.stderr)
        if done.returncode != 0:
            return
        text = text_of(done)
        check(f"atlantis' {path}: has an effect", text != before or key.get("same"))
        for part in key.get("gives", []):
            check(f"atlantis' {path}: gives {part}", part in text and (part not in before or key.get("same")))
        if "warns" in key:
            warnings = warnings_of([d for d in yaml.safe_load_all(done.stdout) if d])
            lines = [line for line in warnings.splitlines() if line.startswith(f"{path.split('.')[0] if path.split('.')[0] in ('redis', 'image') else path}:")]
            check(f"atlantis' {path}: is warned of", any(key["warns"] in line for line in lines), warnings)
        else:
            check(f"atlantis' {path}: has an equivalent", "gives" in key)

    with concurrent.futures.ThreadPoolExecutor(3) as several:
        list(several.map(one, keys.items()))

    # A key with everything below it commented out is null, which takes the default away.
    def without(name):
        done = helm(merged(LEAST, {name: None}))
        check(f"null for {name}: rendered, or refused by name", done.returncode == 0 or f"'{name}'" in done.stderr or f"{name} is missing" in done.stderr or name == "image", done.stderr)

    with concurrent.futures.ThreadPoolExecutor(3) as several:
        list(several.map(without, yaml.safe_load((CHART / "values.yaml").read_text())))


def other_values():
    docs = rendered("existing-secrets", LEAST, EXISTING)
    env = env_of(pod_of(docs)[2])
    check("existing secrets: none is made", not any(d["kind"] == "Secret" for d in docs))
    check("existing secrets: they are read", (env["TIDELOCK_GH_TOKEN"], env["TIDELOCK_WEB_USERNAME"], env["TIDELOCK_API_SECRET"])
          == (("mine", "github_token"), ("login", "username"), ("api", "apisecret")))
    bucket = {"bucket": "gs://state/tidelock", "image": {"digest": "sha256:" + "a" * 64}, "networkPolicy": {"enabled": True, "ingressRanges": ["35.191.0.0/16"]},
              "podMonitor": {"enabled": True, "kind": "PodMonitor"},
              "prometheusRule": {"enabled": True, "additionalLabels": {"release": "prometheus"}}, "grafanaDashboard": {"enabled": True}, "podDisruptionBudget": {"enabled": True}}
    docs = rendered("bucket", LEAST, EXISTING, bucket)
    workload, pod, container = pod_of(docs)
    check("bucket: a Deployment that surges", workload["kind"] == "Deployment" and workload["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0})
    data = next(v for v in pod["spec"]["volumes"] if v["name"] == "data")
    check("bucket: the quota is the volume's limit", data["emptyDir"]["sizeLimit"] == env_of(container)["TIDELOCK_SCRATCH_QUOTA_MIB"] + "Mi" == "10240Mi")
    check("bucket: the image by digest", container["image"].endswith("@sha256:" + "a" * 64))
    policy = str(of(docs, "NetworkPolicy")["spec"])
    check("bucket: names, the controller and the metadata server", all(a in policy for a in ("169.254.20.10/32", "ingress-nginx", "35.191.0.0/16", "169.254.169.252/32")))
    rules = of(docs, "PrometheusRule")
    check("bucket: alerts", [r["alert"] for r in rules["spec"]["groups"][0]["rules"]][0] == "TidelockNoLeader" and rules["metadata"]["labels"]["release"] == "prometheus")
    board = of(docs, "ConfigMap", "tidelock-dashboard")
    check("bucket: the dashboard is the file", json.loads(board["data"]["tidelock.json"]) == json.loads((CHART / "files/dashboard.json").read_text()) and board["metadata"]["labels"]["grafana_dashboard"] == "1")
    check("bucket: budget", of(docs, "PodDisruptionBudget")["spec"]["minAvailable"] == 1)
    check("bucket: metrics with the login", of(docs, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["basicAuth"]["username"] == {"name": "login", "key": "username"})
    hosts = {"ingress": {"host": "", "hosts": [{"host": "a.test", "paths": ["/"]}, {"host": "b.test", "paths": ["/x"], "service": "sign-on"}]}}
    docs = rendered("hosts", LEAST, hosts)
    check("several hosts", routes(of(docs, "Ingress")) == [("a.test", "/events", "Exact", "tidelock"), ("a.test", "/", "Prefix", "tidelock"),
          ("b.test", "/events", "Exact", "tidelock"), ("b.test", "/x", "Prefix", "sign-on")], routes(of(docs, "Ingress")))
    paths = {"ingress": {"paths": [{"path": "/", "service": "sign-on", "port": 8080}]}}
    docs = rendered("paths", LEAST, paths)
    check("pages behind sign-on", routes(of(docs, "Ingress")) == [("tf.acme.test", "/events", "Exact", "tidelock"), ("tf.acme.test", "/", "Prefix", "sign-on")])
    large = rendered("long-times", LEAST, {"terminationGracePeriodSeconds": 3605})
    check("an hour is the most", env_of(pod_of(large)[2])["TIDELOCK_SHUTDOWN_GRACE"] == "3600s")


def azure_devops():
    """Values of Atlantis' chart for Azure DevOps, and both hosts in one server."""
    azure = {"user": "bot@contoso.test", "token": "t0ken", "webhookUser": "hooks", "webhookPassword": "long enough to keep"}
    docs = rendered("azure-devops", merged(LEAST, {"orgAllowlist": "dev.azure.com/contoso/*"}) | {"github": {}, "azuredevops": azure})
    env = env_of(pod_of(docs)[2])
    secret = {k: base64.b64decode(v) for k, v in of(docs, "Secret", "tidelock-webhook")["data"].items()}
    check("azure: the Secret has both", secret == {"azuredevops_token": b"t0ken", "azuredevops_webhook_password": b"long enough to keep"}, secret)
    check("azure: the server reads them", (env["TIDELOCK_AZUREDEVOPS_TOKEN"], env["TIDELOCK_AZUREDEVOPS_WEBHOOK_PASSWORD"])
          == (("tidelock-webhook", "azuredevops_token"), ("tidelock-webhook", "azuredevops_webhook_password")), env)
    check("azure: users", (env["TIDELOCK_AZUREDEVOPS_USER"], env["TIDELOCK_AZUREDEVOPS_WEBHOOK_USER"]) == ("bot@contoso.test", "hooks"))
    check("azure: nothing of another host", not any(name.startswith("TIDELOCK_GH_") for name in env) and "TIDELOCK_AZUREDEVOPS_HOSTNAME" not in env)
    own = {"azuredevops": {"user": "CONTOSO\\bot", "webhookUser": "hooks", "hostname": "tfs.contoso.test/tfs"}, "vcsSecretName": "mine"}
    docs = rendered("both-hosts", LEAST, EXISTING, own)
    env = env_of(pod_of(docs)[2])
    check("both hosts: one Secret of one's own", not any(d["kind"] == "Secret" for d in docs) and (
        env["TIDELOCK_GH_TOKEN"], env["TIDELOCK_AZUREDEVOPS_TOKEN"]) == (("mine", "github_token"), ("mine", "azuredevops_token")))
    check("both hosts: a server of one's own", env["TIDELOCK_AZUREDEVOPS_HOSTNAME"] == "tfs.contoso.test/tfs" and env["TIDELOCK_AZUREDEVOPS_USER"] == "CONTOSO\\bot")


def gitlab_gitea_and_bitbucket():
    """Values of Atlantis' chart for GitLab, Gitea and Bitbucket, and ours for Bitbucket Data Center, each alone."""
    for host, key in (("gitlab", "gitlab"), ("gitea", "gitea"), ("bitbucket", "bitbucket"), ("bitbucket_data_center", "bitbucketDataCenter")):
        values = {"user": "bot", "token": "t0ken", "secret": "long enough to keep"} | ({"baseUrl": "https://git.acme.test"} if key == "bitbucketDataCenter" else {})
        docs = rendered(host, merged(LEAST, {"orgAllowlist": f"{host}.com/acme/*"}) | {"github": {}, key: values})
        env, prefix = env_of(pod_of(docs)[2]), f"TIDELOCK_{host.upper()}_"
        secret = {k: base64.b64decode(v) for k, v in of(docs, "Secret", "tidelock-webhook")["data"].items()}
        check(f"{host}: the Secret has both", secret == {f"{host}_token": b"t0ken", f"{host}_secret": b"long enough to keep"}, secret)
        check(f"{host}: the server reads them", (env[f"{prefix}TOKEN"], env[f"{prefix}WEBHOOK_SECRET"], env[f"{prefix}USER"])
              == (("tidelock-webhook", f"{host}_token"), ("tidelock-webhook", f"{host}_secret"), "bot"), env)
        others = [name for name in env if name.startswith(("TIDELOCK_GH_", "TIDELOCK_GITLAB_", "TIDELOCK_GITEA_", "TIDELOCK_BITBUCKET_", "TIDELOCK_AZURE")) and not name.startswith(prefix)]
        check(f"{host}: nothing of another host, nor an address", not others and not {f"{prefix}HOSTNAME", *([] if "baseUrl" in values else [f"{prefix}BASE_URL"])} & env.keys(), others)
        check(f"{host}: the address that is given", env.get(f"{prefix}BASE_URL") == values.get("baseUrl"), env)
    both = {"bitbucket": {"user": "bot@acme.test"}, "bitbucketDataCenter": {"user": "bot", "baseUrl": "https://git.acme.test"}, "vcsSecretName": "mine"}
    env = env_of(pod_of(rendered("both-bitbuckets", merged(LEAST, {"orgAllowlist": "bitbucket.org/acme/*"}) | {"github": {}} | both))[2])
    check("both Bitbuckets: each has its own", (env["TIDELOCK_BITBUCKET_TOKEN"], env["TIDELOCK_BITBUCKET_DATA_CENTER_TOKEN"], env["TIDELOCK_BITBUCKET_USER"], env["TIDELOCK_BITBUCKET_DATA_CENTER_USER"])
          == (("mine", "bitbucket_token"), ("mine", "bitbucket_data_center_token"), "bot@acme.test", "bot"), env)


def github_app():
    app = {"id": 123456, "key": "pem", "secret": "s3cret", "installationId": 7}
    docs = rendered("github-app", merged(LEAST, {"githubApp": app}) | {"github": {"hostname": "git.acme.test"}})
    env = env_of(pod_of(docs)[2])
    secret = {k: base64.b64decode(v) for k, v in of(docs, "Secret", "tidelock-webhook")["data"].items()}
    check("app: the Secret has key and secret", secret == {"key.pem": b"pem", "github_secret": b"s3cret"}, secret)
    check("app: what the server is told", {n: v for n, v in env.items() if n.startswith("TIDELOCK_GH_")} == {
        "TIDELOCK_GH_APP_ID": "123456", "TIDELOCK_GH_APP_INSTALLATION_ID": "7", "TIDELOCK_GH_APP_KEY": ("tidelock-webhook", "key.pem"),
        "TIDELOCK_GH_HOSTNAME": "git.acme.test", "TIDELOCK_GH_WEBHOOK_SECRET": ("tidelock-webhook", "github_secret")}, env)
    check("app: a warning is not due", warnings_of(docs) == "", warnings_of(docs))
    docs = rendered("github-app-own-secret", LEAST | {"github": {}, "githubApp": {"id": 1}, "vcsSecretName": "mine"})
    check("app: a Secret of one's own", env_of(pod_of(docs)[2])["TIDELOCK_GH_APP_KEY"] == ("mine", "key.pem") and not any(d["kind"] == "Secret" for d in docs))
    docs = rendered("github-app-and-user", LEAST, {"githubApp": app})
    env = env_of(pod_of(docs)[2])
    check("app: an account goes before it, as in Atlantis", "TIDELOCK_GH_APP_ID" not in env and env["TIDELOCK_GH_USER"] == "bot")
    check("app: which is said", "githubApp: not used" in warnings_of(docs), warnings_of(docs))


def routes_of_the_gateway():
    route = {"ingress": {"host": ""}, "route": {"main": {"enabled": True, "parentRefs": [{"name": "gate"}], "hostnames": ["tf.acme.test"]},
             "events": {"enabled": True, "parentRefs": [{"name": "gate"}], "matches": [{"path": {"type": "Exact", "value": "/events"}}]}}}
    docs = rendered("routes", LEAST, route)
    main, events = of(docs, "HTTPRoute"), of(docs, "HTTPRoute", "tidelock-events")
    check("routes: each leads to the Service", all(r["spec"]["rules"][0]["backendRefs"][0]["name"] == "tidelock" for r in (main, events)))
    check("routes: deliveries have one of their own", events["spec"]["rules"][0]["matches"] == [{"path": {"type": "Exact", "value": "/events"}}])
    check("routes: no Ingress for every host beside them", of(docs, "Ingress") is None and "ingress.enabled: no Ingress" in warnings_of(docs))
    check("routes: the address", env_of(pod_of(docs)[2])["TIDELOCK_ATLANTIS_URL"] == "https://tf.acme.test")


def executors():
    template = "apiVersion: batch/v1\nkind: Job\n"
    values = {"bucket": "gs://state/tidelock", "networkPolicy": {"enabled": True}, "executors": {
        "enabled": True, "templates": {"plan-job.yaml": template}, "serviceAccounts": {"tidelock-plan": {"iam.gke.io/gcp-service-account": "p@x.test"}}}}
    docs = rendered("executors", LEAST, values)
    rights = {tuple(rule["resources"]): set(rule["verbs"]) for rule in of(docs, "Role", "tidelock-executors")["rules"]}
    check("executors: rights", rights == {("jobs",): {"create", "get", "list", "watch", "delete"}, ("pods",): {"get", "list", "watch"}}, rights)
    check("executors: of the server", of(docs, "RoleBinding", "tidelock-executors")["subjects"] == [{"kind": "ServiceAccount", "name": "tidelock", "namespace": "tidelock"}])
    check("executors: its token", pod_of(docs)[1]["spec"]["automountServiceAccountToken"] is True)
    check("executors: templates are beside repos.yaml", of(docs, "ConfigMap")["data"]["plan-job.yaml"] == template)
    account = of(docs, "ServiceAccount", "tidelock-plan")
    check("executors: accounts of jobs", account["metadata"]["annotations"] and account["automountServiceAccountToken"] is False)
    check("executors: the network of both", of(docs, "NetworkPolicy", "tidelock-jobs") and "6443" in str(of(docs, "NetworkPolicy", "tidelock-api-server")["spec"]))
    other = rendered("executors", LEAST, values, {"executors": {"templates": {"plan-job.yaml": template + "spec: {}\n"}}})
    sums = [pod_of(found)[1]["metadata"]["annotations"]["tidelock/config"] for found in (docs, other)]
    check("executors: a changed template starts a rollout", sums[0] != sums[1])


def examples_elsewhere():
    """The values of examples/aws and examples/azure."""
    values = {name: yaml.safe_load((CHART.parents[1] / f"examples/{name}-values.yaml").read_text()) for name in ("aws/eks", "azure/aks")}
    for name, given in values.items():
        short = name.split("/")[1]
        docs = rendered(short, given)
        workload, pod, container = pod_of(docs)
        claim = workload["spec"]["volumeClaimTemplates"][0]["spec"]
        check(f"{short}: state is on a volume of one pod", claim["accessModes"] == ["ReadWriteOncePod"] and claim["storageClassName"])
        check(f"{short}: no Secret is made of what the file says", not any(d["kind"] == "Secret" for d in docs))
        check(f"{short}: nothing to warn of", warnings_of(docs) == "", warnings_of(docs))
        check(f"{short}: a login, https, and an identity of the cloud", env_of(container)["TIDELOCK_WEB_BASIC_AUTH"] == "true"
              and env_of(container)["TIDELOCK_ATLANTIS_URL"].startswith("https://") and of(docs, "ServiceAccount")["metadata"]["annotations"])
    docs = rendered("aks", values["azure/aks"])
    env, pod = env_of(pod_of(docs)[2]), pod_of(docs)[1]
    check("aks: plans have the identity", env["ARM_USE_OIDC"] == "true" and env["ARM_OIDC_TOKEN_FILE_PATH"] and pod["metadata"]["labels"]["azure.workload.identity/use"] == "true"
          and env["ARM_CLIENT_ID"] == of(docs, "ServiceAccount")["metadata"]["annotations"]["azure.workload.identity/client-id"])


def examples_of_hosts():
    """The values of examples/hosts: the server gets the secrets of this host, and of no other."""
    for name, prefix, secret in (("gitlab", "GITLAB", "gitlab"), ("gitea", "GITEA", "gitea"), ("bitbucket-cloud", "BITBUCKET", "bitbucket"),
                                 ("bitbucket-data-center", "BITBUCKET_DATA_CENTER", "bitbucket_data_center")):
        given = yaml.safe_load((CHART.parents[1] / f"examples/hosts/{name}-values.yaml").read_text())
        docs = rendered(f"example-{name}", given)
        env = env_of(pod_of(docs)[2])
        check(f"{name}: its secrets", {n: v for n, v in env.items() if n.startswith("TIDELOCK_") and n.endswith(("_TOKEN", "_SECRET"))}
              == {f"TIDELOCK_{prefix}_TOKEN": (given["vcsSecretName"], f"{secret}_token"),
                  f"TIDELOCK_{prefix}_WEBHOOK_SECRET": (given["vcsSecretName"], f"{secret}_secret")}, env)
        check(f"{name}: nothing to warn of", warnings_of(docs) == "" and not any(d["kind"] == "Secret" for d in docs), warnings_of(docs))


def the_chart_itself():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    check("Chart.yaml: who and what", chart["maintainers"] and chart["icon"].startswith("https://") and chart["sources"] and chart["keywords"], chart)
    hub = {k: v for k, v in chart["annotations"].items() if k.startswith("artifacthub.io/")}
    check("Chart.yaml: Artifact Hub", {"artifacthub.io/license", "artifacthub.io/category", "artifacthub.io/links"} <= hub.keys()
          and all(link["url"].startswith("https://") for link in yaml.safe_load(hub["artifacthub.io/links"])), hub)
    current = subprocess.run([sys.executable, CHART.parents[1] / "scripts/chart-values", "--check"], capture_output=True, text=True)
    check("README.md: values are those of values.yaml", current.returncode == 0, current.stdout + current.stderr)


def refused_values():
    cases = [
        ({"azuredevops": {"user": "u", "webhookUser": "h"}}, "azuredevops.token and azuredevops.webhookPassword are missing"),
        ({"azuredevops": {"user": "u", "token": "t"}}, "webhookUser"),
        ({"azuredevops": {"user": "u", "webhookUser": "h", "token": "t", "webhookPassword": "short"}}, "webhookPassword"),
        ({"orgAllowlist": ""}, "orgAllowlist is missing"),
        ({"github": {"token": None, "secret": None}}, "github.token and github.secret are missing"),
        ({"github": {"user": None}}, "user"),
        ({"volumeClaim": {"enabled": False}}, "leaves the state nowhere"),
        ({"basicAuth": {"username": "u"}}, "basicAuth.password is missing"),
        ({"bitbucket": {"user": "u", "token": "t"}}, "bitbucket.token and bitbucket.secret are missing"),
        ({"bitbucket": {"token": "t", "secret": "long enough to keep"}}, "user"),
        ({"bitbucketDataCenter": {"user": "u", "baseUrl": "https://b.test", "token": "t"}}, "bitbucketDataCenter.token and bitbucketDataCenter.secret are missing"),
        ({"bitbucketDataCenter": {"user": "u", "token": "t", "secret": "long enough to keep"}}, "baseUrl"),
        ({"bitbucketDataCenter": {"user": "u", "baseUrl": "https://b.test", "token": "t", "secret": "short"}}, "secret"),
        ({"bitbucket": {"user": "u", "token": "t", "secret": "short"}}, "secret"),
        ({"gitea": {"user": "u", "token": "t"}}, "gitea.token and gitea.secret are missing"),
        ({"gitea": {"token": "t", "secret": "long enough to keep"}}, "user"),
        ({"gitea": {"user": "u", "token": "t", "secret": "short"}}, "secret"),
        ({"gitlab": {"user": "u", "token": "t"}}, "gitlab.token and gitlab.secret are missing"),
        ({"gitlab": {"token": "t", "secret": "long enough to keep"}}, "user"),
        ({"gitlab": {"user": "u", "token": "t", "secret": "short"}}, "secret"),
        ({"github": None, "githubApp": {"id": 1}}, "githubApp.key and githubApp.secret are missing"),
        ({"github": None, "githubApp": {"key": "k", "secret": "s"}}, "githubApp.id is missing"),
        ({"github": {"user": None, "token": None, "secret": None, "hostname": "git.acme.test"}}, "github.user is missing"),
        ({"disableApply": True, "environment": {"ATLANTIS_ALLOW_COMMANDS": "apply"}}, "disableApply and environment.ATLANTIS_ALLOW_COMMANDS"),
        # The tag of Atlantis' image is no tag of ours.
        ({"image": {"repository": "ghcr.io/runatlantis/atlantis", "tag": "v0.46.0"}}, "names no released image"),
        ({"terminationGracePeriodSeconds": 5}, "terminationGracePeriodSeconds"),
        ({"orgAllowList": "x"}, "orgAllowList"),
        ({"ingress": {"hots": "x"}}, "hots"),
        ({"bucket": "s3://x"}, "bucket"),
        ({"executors": {"enabled": True}}, "executors.enabled needs bucket"),
        ({"executors": {"templates": {"repos.yaml": "x"}}}, "repos.yaml"),
        ({"initConfig": {"enabled": True}}, "initConfig.script is missing"),
    ]
    for values, said in cases:
        done = helm(merged(LEAST, values))
        check(f"refused: {values}", done.returncode != 0 and said in done.stderr, done.stderr)


def schema_and_values():
    schema = json.loads((CHART / "values.schema.json").read_text())

    def missing(values, properties, path=""):
        for key, value in values.items():
            known = properties.get(key)
            if known is None:
                yield path + key
            elif isinstance(value, dict) and value and "properties" in known:
                yield from missing(value, known["properties"], f"{path}{key}.")
    unknown = list(missing(yaml.safe_load((CHART / "values.yaml").read_text()), schema["properties"]))
    check("each value has a schema", not unknown, unknown)


default_values()
values_of_atlantis()
every_key_of_atlantis()
other_values()
azure_devops()
gitlab_gitea_and_bitbucket()
github_app()
routes_of_the_gateway()
executors()
examples_elsewhere()
examples_of_hosts()
the_chart_itself()
refused_values()
schema_and_values()
print(f"chart: {len(PASSED)} passed, {len(FAILED)} failed")
sys.exit(1 if FAILED else 0)
