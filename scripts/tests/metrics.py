#!/usr/bin/env python3
"""/metrics of a sandbox, the alerts and the dashboard against a real Prometheus: metrics.py TIDELOCK DIRECTORY-OF-PROMETHEUS"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

TIDELOCK, TOOLS = sys.argv[1], pathlib.Path(sys.argv[2])
ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / "charts/tidelock/files"
RULES, DASHBOARD, TESTS = FILES / "alerts.yaml", FILES / "dashboard.json", ROOT / "scripts/tests/alerts.test.yaml"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
LIMIT = 60
PASSED, FAILED = [], []


def check(name, condition, detail=""):
    (PASSED if condition else FAILED).append(name)
    if not condition:
        print(f"FAILED {name} {detail}")


def get(url, accept="*/*"):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def until(what, look, *processes):
    """Asks again until there is an answer, and not None or an error."""
    end, error = time.monotonic() + LIMIT, None
    while time.monotonic() < end:
        for process in processes:
            if process.poll() is not None:
                sys.exit(f"{process.args[0]} ended with {process.returncode} before {what}")
        try:
            if (found := look()) is not None:
                return found
        except OSError as error_now:
            error = error_now
        time.sleep(0.2)
    sys.exit(f"{what} was not seen in {LIMIT} s: {error}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def promtool(name, *arguments, text=None):
    ran = subprocess.run([TOOLS / "promtool", *arguments], input=text, capture_output=True, text=True)
    check(name, ran.returncode == 0, ran.stdout + ran.stderr)


def expressions():
    """Those of the dashboard, as Grafana would send them for all jobs."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$job", ".*")


def metrics_in(expression):
    return set(re.findall(r"\btidelock_\w+", expression))


def pages(server):
    kind, text = get(server)
    check("the text format is the default", kind.startswith("text/plain; version=0.0.4"), kind)
    promtool("promtool check metrics", "check", "metrics", text=text)
    kind, open_text = get(server, OPEN_METRICS)
    check("OpenMetrics for those who ask", kind.startswith("application/openmetrics-text; version=1.0.0"), kind)
    try:
        families = {family.name: family for family in text_string_to_metric_families(open_text)}
    except ValueError as error:
        check("the strict parser of OpenMetrics", False, error)
        return [], {}
    check("OpenMetrics has counters, gauges and histograms", {"counter", "gauge", "histogram"} == {f.type for f in families.values()})
    check("OpenMetrics has units", families["tidelock_run_duration_seconds"].unit == "seconds")
    # Of the same page: a family without a sample may get its first one between two requests.
    names = [line.split()[2] for line in open_text.splitlines() if line.startswith("# TYPE ")]
    return names, families


class Prometheus:
    def __init__(self, work, server):
        self.port = free_port()
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
                  "scrape_configs": [{"job_name": "tidelock", "static_configs": [{"targets": [server]}]}]}
        (work / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.log = (work / "prometheus.log").open("w")
        self.process = subprocess.Popen(
            [TOOLS / "prometheus", f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/tsdb",
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"], stdout=self.log, stderr=subprocess.STDOUT)

    def api(self, path, **query):
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        return json.loads(get(address)[1])["data"]

    def value(self, expression):
        """The sum of all results; None if there are none."""
        found = self.api("query", query=expression)["result"]
        return sum(float(series["value"][1]) for series in found) if found else None


def main():
    alerts = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    promtool("promtool check rules", "check", "rules", RULES)
    promtool("promtool test rules", "test", "rules", TESTS)
    tested = {sample["labels"].split('"')[1] for case in yaml.safe_load(TESTS.read_text())["tests"]
              for test in case["promql_expr_test"] for sample in test["exp_samples"]}
    check("each alert fires in a test", tested == {rule["alert"] for rule in alerts}, {rule["alert"] for rule in alerts} ^ tested)
    check("each alert has a runbook", all(len(rule["annotations"]["runbook"]) > 40 for rule in alerts))
    with tempfile.TemporaryDirectory(prefix="tidelock-metrics-") as work:
        work = pathlib.Path(work)
        port, forge = free_port(), free_port()
        sandbox = subprocess.Popen(
            [TIDELOCK, "sandbox", "--executor", "process", "--port", str(port), "--forge-port", str(forge), "--dir", work / "sandbox"],
            stdout=(work / "sandbox.log").open("w"), stderr=subprocess.STDOUT)
        prometheus = None
        try:
            server = f"http://127.0.0.1:{port}/metrics"
            until("the sandbox", lambda: get(server), sandbox)
            prometheus = Prometheus(work, f"127.0.0.1:{port}")
            running(server, prometheus, sandbox, alerts)
        finally:
            for process in [sandbox] + ([prometheus.process] if prometheus else []):
                process.send_signal(signal.SIGTERM)
            for process in [sandbox] + ([prometheus.process] if prometheus else []):
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
            if FAILED:
                print((work / "sandbox.log").read_text()[-3000:], (work / "prometheus.log").read_text()[-3000:])


def running(server, prometheus, sandbox, alerts):
    both = (sandbox, prometheus.process)
    planned = 'tidelock_runs_total{command="plan", result="success"}'
    until("a plan", lambda: (prometheus.value(planned) or 0) >= 1 or None, *both)
    names, families = pages(server)
    for expression, least in [
        ("tidelock_build_info", 1), ('tidelock_role{role="leading"}', 1), ('tidelock_jobs_total{command="plan", result="success"}', 1),
        ('tidelock_run_duration_seconds_count{command="plan"}', 1), ('tidelock_phase_duration_seconds_count{phase="checkout"}', 1),
        ('tidelock_phase_duration_seconds_count{phase="init"}', 1), ('tidelock_phase_duration_seconds_count{phase="plan"}', 1),
        ("tidelock_queue_duration_seconds_count", 1), ("tidelock_kept_plans", 1), ("tidelock_commits_total", 1),
        ('tidelock_executor_jobs_limit', 1),
    ]:
        value = prometheus.value(expression)
        check(f"Prometheus has {expression}", value is not None and value >= least, value)
    check("the mean of a histogram is positive", prometheus.value(
        "tidelock_phase_duration_seconds_sum / (tidelock_phase_duration_seconds_count > 0)") > 0)
    # Prometheus asks for OpenMetrics by itself: only there the metadata has the unit, and the name of a counter no _total.
    metadata = prometheus.api("metadata")
    check("Prometheus scrapes OpenMetrics", metadata["tidelock_run_duration_seconds"][0]["unit"] == "seconds" and "tidelock_runs" in metadata)
    samples = {sample.name for family in families.values() for sample in family.samples}
    for title, expression in expressions():
        found = prometheus.api("query", query=expression)
        check(f"the dashboard's {title}: evaluated", found["resultType"] == "vector", found)
        unknown = {name for name in metrics_in(expression)} - samples
        check(f"the dashboard's {title}: its metrics exist", not unknown, unknown)
    rules = until("the rules", lambda: evaluated(prometheus), *both)
    check("each alert is evaluated", {rule["name"] for rule in rules} == {rule["alert"] for rule in alerts})
    check("no alert is broken", all(rule["health"] == "ok" for rule in rules), rules)
    check("no alert fires here", not any(rule["state"] == "firing" for rule in rules), [r["name"] for r in rules if r["state"] == "firing"])
    for rule in alerts:
        unknown = metrics_in(rule["expr"]) - samples
        check(f"{rule['alert']}: its metrics exist", not unknown, unknown)
    check("the page names no family twice", len(names) == len(families))


def evaluated(prometheus):
    rules = [rule for group in prometheus.api("rules")["groups"] for rule in group["rules"]]
    return rules if rules and all(rule["health"] != "unknown" for rule in rules) else None


os.environ["NO_PROXY"] = "*"
# The caller's time limit ends what was started, too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
began = time.monotonic()
main()
print(f"metrics: {time.monotonic() - began:.0f} s\n{len(PASSED)} passed, {len(FAILED)} failed")
sys.exit(bool(FAILED))
