#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests deploy/alerts.yml, deploy/dashboard.json and deploy/prometheus.yml with a real Prometheus that scrapes a loaded hpvmd.

    dashboards.py BIN_FOLDER

Two tenants run, submit, fail, cancel and are refused while Prometheus scrapes every second. Then the script evaluates each query of the
dashboard and each rule: none may fail, each needs a series with a number, and each label that a legend shows must exist. EMPTY lists queries that
may have no series, with the reason. Debian has no Grafana, so loading the dashboard file is not tested.
"""

import contextlib
import http.client
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

import numpy as np

from e2e import BIN, HERE, OK, ROOT, one_node, port
from observe import ObservedDaemon

DEPLOY = ROOT / "deploy"
SECRET = "a-scraper-is-known-by-this"
CONFIG = """
[server]
listen = "unix:{folder}/hpvmd.sock,127.0.0.1:{port}"
state_dir = "{folder}/state"
[metrics]
listen = "127.0.0.1:0"
token_file = "{folder}/scrape.token"
[log]
format = "json"
[tenants]
from_metadata = true
[devices]
backends = "cpu"
[tls]
certificate = "{folder}/server.pem"
key = "{folder}/server.key"
[jobs]
queued_per_tenant_max = 4
running_per_tenant_max = 1
"""
EMPTY = {
    "hpvm_slow_items_total": "a shared thread that took long is what should not happen",
    "hpvm_store_commit_failures_total": "it takes a disk that fails",
    'hpvm_device_state{state="broken"}': "a device has a series for the state that it is in, and none is broken here",
    "hpvm_device_temperature_celsius": "the test's device has no management library",
    "hpvm_device_power_watts": "likewise",
    "hpvm_device_throttled": "likewise",
    "hpvm_device_memory_errors": "likewise",
    "hpvm_cluster_": "the test's daemon is no host of a cluster",
}
# For each alarm: series that make it fire, one value a minute, and the time at which it fires; "0x30" is 31 zeros, "0+1x30" a growing count.
FIRES = {
    "HpvmdDown": ({'up{job="hpvmd"}': "0x30"}, 5),
    "HpvmdNotReady": ({"hpvm_ready": "0x30", "hpvm_draining": "0x30", "hpvm_intake_closed": "0x30"}, 5),
    "HpvmdIntakeClosed": ({"hpvm_intake_closed": "1x1600"}, 1500),
    "HpvmdStoreFull": ({"hpvm_store_accepts_writes": "0x30"}, 5),
    "HpvmdDiskFilling": ({"hpvm_disk_free_bytes": "40000-40x90", "hpvm_disk_size_bytes": "100000x90"}, 80),
    "HpvmdStoreBroken": ({'process_start_time_seconds{job="hpvmd"}': "1 1 2 2 3 3"}, 5),
    "HpvmdStoreDamaged": ({"hpvm_store_damaged_jobs": "1x30"}, 5),
    "HpvmdCertificate": ({"hpvm_tls_certificate_not_after_seconds": "86400x30"}, 5),
    "HpvmdReloadRefused": ({'hpvm_config_reloads_total{result="refused"}': "0 0 1 1 1 1"}, 5),
    "HpvmdExecutorsCrash": ({'hpvm_executor_events_total{event="crashed"}': "0+3x30"}, 10),
    "HpvmdQueueGrows": ({"hpvm_congested": "1x30"}, 10),
    "HpvmdRejects": ({'hpvm_graph_rejected_total{tenant="ann",reason="resource_exhausted"}': "0+120x30"}, 15),
    "HpvmdExecutorsDoNotStart": ({'hpvm_executor_events_total{event="failed"}': "0+1x30"}, 5),
    "HpvmdDeviceFenced": ({'hpvm_device_fenced{device="vulkan:0"}': "1x30"}, 5),
    "HpvmdDeviceErrors": ({'hpvm_device_memory_errors{device="vulkan:0",kind="corrected"}': "0+10x90"}, 60),
    "HpvmdDevicePaused": ({'hpvm_device_paused{device="vulkan:0"}': "1x1600"}, 1500),
    "HpvmdDeviceBroken": ({'hpvm_device_state{device="vulkan:0",state="broken"}': "1x30"}, 10),
    "HpvmdJobsDead": ({'hpvm_job_seconds_count{state="dead"}': "0 0 1 1 1 1"}, 5),
    "HpvmdAttemptsLost": ({'hpvm_job_attempts_lost_total{reason="executor"}': "0+2x30"}, 15),
    "HpvmdClusterDatabase": ({"hpvm_cluster_database_answers": "0x30"}, 5),
    "HpvmdClusterHostLost": ({'hpvm_cluster_hosts{state="lost"}': "0x70 1x30"}, 80),
    "HpvmdClusterNoLease": ({"hpvm_cluster_has_lease": "0x30"}, 5),
    "HpvmdTenantAtQuota": ({'hpvm_tenant_quota_used{tenant="ann",resource="host-bytes"}': "96x30",
                            'hpvm_tenant_quota_limit{tenant="ann",resource="host-bytes"}': "100x30"}, 20),
    "HpvmdLogLinesDropped": ({'hpvm_log_lines_dropped_total{reason="rate"}': "0 0 5 5 5 5"}, 5),
}
# Series for which no alarm fires: a working daemon, restarted once, far from its limits, with quotas that are unlimited or have room.
QUIET = {
    "hpvm_cluster_database_answers": "1x40 0 1x48", "hpvm_cluster_has_lease": "1x40 0 1x48", 'hpvm_cluster_hosts{state="lost"}': "1x90",
    'up{job="hpvmd"}': "1x90", "hpvm_ready": "0x90", "hpvm_draining": "1x40 0x48", "hpvm_intake_closed": "0x40 1x48", "hpvm_store_accepts_writes": "1x90",
    "hpvm_disk_free_bytes": "60000-5x90", "hpvm_disk_size_bytes": "100000x90", 'process_start_time_seconds{job="hpvmd"}': "1x40 2x48",
    "hpvm_store_damaged_jobs": "0x90", "hpvm_tls_certificate_not_after_seconds": "9999999x90", "hpvm_tls_certificate_refused": "0x90",
    'hpvm_config_reloads_total{result="taken"}': "0+1x90", 'hpvm_config_reloads_total{result="refused"}': "1x90",
    'hpvm_executor_events_total{event="crashed"}': "0x60 1x29", 'hpvm_executor_events_total{event="failed"}': "2x90", "hpvm_congested": "0x90",
    'hpvm_graph_rejected_total{tenant="ann",reason="invalid_argument"}': "0+600x90", 'hpvm_device_state{device="cpu:0",state="ready"}': "1x90",
    'hpvm_job_seconds_count{state="failed"}': "0+9x90", 'hpvm_job_seconds_count{state="dead"}': "3x90",
    'hpvm_job_attempts_lost_total{reason="daemon"}': "0+5x90", 'hpvm_job_attempts_lost_total{reason="executor"}': "0 1x89",
    'hpvm_tenant_quota_used{tenant="ann",resource="host-bytes"}': "80x90", 'hpvm_tenant_quota_limit{tenant="ann",resource="host-bytes"}': "100x90",
    'hpvm_tenant_quota_used{tenant="ann",resource="modules"}': "80x90", 'hpvm_tenant_quota_limit{tenant="ann",resource="modules"}': "0x90",
    'hpvm_tenant_quota_used{tenant="ann",resource="running-jobs"}': "16x90", 'hpvm_tenant_quota_limit{tenant="ann",resource="running-jobs"}': "16x90",
    'hpvm_tenant_quota_refused_total{tenant="ann",resource="modules"}': "7x90", 'hpvm_log_lines_dropped_total{reason="rate"}': "4x90",
}
# Values for the variables and the interval that Grafana substitutes in queries.
VARIABLES = {"$instance": ".*", "$tenant": ".*", "$__rate_interval": "1m"}


def expressions_of_rules():
    """Returns (name, expression) of each alarm."""
    return re.findall(r"alert: (\w+)\n\s+expr: (.*)", (DEPLOY / "alerts.yml").read_text())


def sides(expression):
    """Yields the sides of a rule's comparison, which must have series even when all is well."""
    for side in re.split(r"\s(?:or|and(?: on \(\w+\))?)\s", expression):
        side = re.sub(r"\s(?:==|!=|<|>)\s[0-9.* ]+\)?$", "", side)
        yield side.removeprefix("(") if side.count("(") > side.count(")") else side


class LoadedDaemon(ObservedDaemon):
    def __init__(self, folder):
        folder.mkdir()
        (folder / "state").mkdir(mode=0o700)
        (folder / "scrape.token").write_text(SECRET)
        (folder / "scrape.token").chmod(0o600)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj", "/CN=localhost",
                        "-keyout", folder / "server.key", "-out", folder / "server.pem"], check=True, capture_output=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.tls_port = probe.getsockname()[1]
        self.config = folder / "hpvmd.toml"
        self.config.write_text(CONFIG.format(folder=folder, port=self.tls_port))
        self.folder, self.server, self.log = folder, f"unix:{folder}/hpvmd.sock", folder / "hpvmd.log"
        self.log_start, self.metrics_port = 0, None
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([BIN / "hpvmd", "--config", self.config], stderr=log, stdout=log)


class Load(threading.Thread):
    """Load is the repeated activity of two tenants."""

    def __init__(self, daemon, folder):
        super().__init__(daemon=True)
        self.daemon_process, self.folder, self.ends = daemon, folder, threading.Event()
        shutil.copy(HERE / "kernels.wasm", folder)
        np.save(folder / "in.npy", np.arange(4, dtype=np.int32))
        in_out = (port("in", "in"), port("out", "out"))
        self.graphs = {}
        for entry, ports, scalars in (("add", in_out, [("amount", 1)]), ("divide", in_out, ()), ("spin", (port("out", "inout"),), ())):
            path = folder / f"{entry}.json"
            path.write_text(json.dumps(one_node(entry, ports, scalars)))
            self.graphs[entry] = (path, "--input", f"{'out' if entry == 'spin' else 'in'}={folder / 'in.npy'}")

    def ctl(self, tenant, *words, code=None):
        done = self.daemon_process.ctl("--tenant", tenant, "--patience", "1s", *words)
        assert code is None or done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        return done

    def run(self):
        while not self.ends.is_set():
            for tenant in ("ann", "bob"):
                self.ctl(tenant, "run", *self.graphs["add"])
                self.ctl(tenant, "submit", *self.graphs["add"])
                self.ctl(tenant, "submit", *self.graphs["divide"])
            # More jobs than may wait.
            jobs = [self.ctl("bob", "submit", "--detach", *self.graphs["spin"]).stdout.split() for _ in range(7)]
            self.ctl("bob", "cancel", *[words[0] for words in jobs if words])
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.daemon_process.tls_port), 5) as stranger:
                stranger.sendall(b"no handshake is this\r\n\r\n")
                stranger.recv(100)

    def stop(self):
        self.ends.set()
        self.join(60)


class Prometheus:
    def __init__(self, folder, target):
        folder.mkdir()
        config = (DEPLOY / "prometheus.yml").read_text()
        (folder / "token").write_text(SECRET)
        for old, new in (("/usr/share/hpvm/alerts.yml", str(DEPLOY / "alerts.yml")), ("127.0.0.1:9464", target),
                         ("/etc/prometheus/hpvmd.token", str(folder / "token")), ("interval: 15s", "interval: 1s")):
            assert old in config, old
            config = config.replace(old, new)
        (folder / "prometheus.yml").write_text(config)
        subprocess.run(["promtool", "check", "config", folder / "prometheus.yml"], check=True, capture_output=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{self.port}"],
                stdout=log, stderr=log)

    def ask(self, path, **words):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            connection.request("GET", f"/api/v1/{path}?{urllib.parse.urlencode(words)}")
            answer = json.loads(connection.getresponse().read())
        assert answer["status"] == "success", f"{words}: {answer.get('error')}"
        return answer["data"]

    def series(self, expression):
        return self.ask("query", query=expression)["result"]

    def wait_ready(self):
        end = time.monotonic() + 60
        while True:
            try:
                if self.series('up{job="hpvmd"} == 1'):
                    return
            except (OSError, ValueError):  # Prometheus is not up yet, or still starting: then it answers in plain text.
                pass
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()[-2000:]
            time.sleep(0.2)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Alarms(unittest.TestCase):
    """Alarms needs no daemon: promtool evaluates the rules on given series."""

    def play(self, series, asked):
        """Evaluates the rules; `asked`: a minute, an alarm or a pattern of alarms, and how many fire at that minute."""
        tests = [{"interval": "1m", "input_series": [{"series": name, "values": values} for name, values in series.items()],
                  "promql_expr_test": [{"eval_time": f"{minute}m", "expr": f'count(ALERTS{{alertname=~"{name}", alertstate="firing"}})',
                                        "exp_samples": [{"labels": "{}", "value": count}] if count else []} for minute, name, count in asked]}]
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            json.dump({"rule_files": [str(DEPLOY / "alerts.yml")], "evaluation_interval": "1m", "tests": tests}, file)
            file.flush()
            done = subprocess.run(["promtool", "test", "rules", file.name], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_fires(self):
        self.assertEqual({name for name, _ in expressions_of_rules()}, set(FIRES))
        for name, (series, minute) in FIRES.items():
            with self.subTest(name):
                self.play(series, [(minute, name, 1)])

    def test_none_fires_without_need(self):
        self.play(QUIET, [(minute, ".*", 0) for minute in range(1, 90, 4)])


class Dashboards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvmd-dashboards-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.daemon = LoadedDaemon(cls.folder / "daemon")
        cls.addClassCleanup(cls.stop_daemon)
        ready = cls.daemon.ctl("devices", "--connect-timeout", "30")
        assert ready.returncode == OK, ready.stderr + cls.daemon.log.read_text()
        cls.daemon.wait_ready()
        cls.load = Load(cls.daemon, cls.folder)
        cls.load.ctl("ann", "submit", *cls.load.graphs["add"], code=OK)
        cls.prometheus = Prometheus(cls.folder / "prometheus", f"127.0.0.1:{cls.daemon.metrics_port}")
        cls.addClassCleanup(cls.prometheus.stop)
        cls.prometheus.wait_ready()
        cls.load.start()
        cls.addClassCleanup(cls.load.stop)

    @classmethod
    def stop_daemon(cls):
        code = cls.daemon.stop()
        assert code == 0, f"hpvmd ended with {code}:\n{cls.daemon.log.read_text()[-3000:]}"

    def wait_for_numbers(self, queries):
        """Returns the labels of each query's series, once each query has a number; queries of EMPTY may have none."""
        found, end = {}, time.monotonic() + 90
        while True:
            for query in queries:
                if query not in found:
                    text = query
                    for name, value in VARIABLES.items():
                        text = text.replace(name, value)
                    series = self.prometheus.series(text)
                    if any(math.isfinite(float(one["value"][1])) for one in series):
                        found[query] = [one["metric"] for one in series]
            missing = [query for query in queries if query not in found and not any(name in query for name in EMPTY)]
            if not missing:
                return found
            self.assertLess(time.monotonic(), end, f"These queries return no number: {missing}")
            time.sleep(0.5)

    def test_each_query_of_the_dashboard(self):
        dashboard = json.loads((DEPLOY / "dashboard.json").read_text())
        targets = [target for panel in dashboard["panels"] for target in panel.get("targets", [])]
        self.assertGreater(len(targets), 60)
        found = self.wait_for_numbers([target["expr"] for target in targets])
        for target in targets:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                for metric in found.get(target["expr"], []):
                    self.assertIn(label, metric, target["expr"])
        for variable in dashboard["templating"]["list"][1:]:
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
            self.assertTrue([one for one in self.prometheus.series(metric) if label in one["metric"]], variable["name"])
        tenants = {one["metric"]["tenant"] for one in self.prometheus.series("hpvm_running")}
        self.assertLessEqual({"ann", "bob"}, tenants)

    def test_the_dashboard_is_laid_out(self):
        dashboard = json.loads((DEPLOY / "dashboard.json").read_text())
        places, ids = set(), set()
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & places, f"{panel['title']} overlaps another panel")
            self.assertNotIn(panel["id"], ids)
            places |= cells
            ids.add(panel["id"])
        names = {variable["name"] for variable in dashboard["templating"]["list"]} | {"__rate_interval", "__all"}
        self.assertLessEqual(set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))), names)

    def test_each_rule(self):
        rules = expressions_of_rules()
        self.assertGreater(len(rules), 15)
        self.wait_for_numbers([side for _, rule in rules for side in sides(rule)])
        (group,) = self.prometheus.ask("rules")["groups"]
        self.assertEqual({rule["name"] for rule in group["rules"]}, {name for name, _ in rules})
        for rule in group["rules"]:
            self.assertEqual((rule["health"], rule.get("lastError")), ("ok", None), rule["name"])
        # Only these alarms may fire: the load includes refused tenants and exceeded quotas.
        firing = {one["metric"]["alertname"] for one in self.prometheus.series('ALERTS{alertstate="firing"}')}
        self.assertLessEqual(firing, {"HpvmdReloadRefused", "HpvmdDiskFilling"})

    def test_an_alarm(self):
        self.daemon.config.write_text(self.daemon.config.read_text() + "[nonsense]\n")
        end = time.monotonic() + 60
        self.wait_for_numbers(['hpvm_config_reloads_total{result="refused"}'])
        self.daemon.process.send_signal(signal.SIGHUP)
        while not self.prometheus.series('ALERTS{alertname="HpvmdReloadRefused", alertstate="firing"}'):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.2)


if __name__ == "__main__":
    wanted = [name for name in ("prometheus", "promtool", "openssl") if not shutil.which(name)]
    if wanted:
        print(f"skipped: {', '.join(wanted)} missing; deploy/setup.sh --tests installs what is needed")
        sys.exit(0)
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
