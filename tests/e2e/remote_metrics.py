#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests metrics for a Prometheus on another host: TLS and credentials, in a separate network namespace.

    remote_metrics.py BIN_FOLDER [TestCase.test ...]
"""

import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

APART = "HPVMD_TEST_APART"
HOST = "10.77.0.1"
REASON = ("it takes root to make a network namespace" if os.geteuid() != 0 else
          next((f"{name} is missing" for name in ("unshare", "ip", "openssl") if not shutil.which(name)), None))
if __name__ == "__main__" and REASON:
    print(f"skipped: {REASON}")
    sys.exit(0)
if __name__ == "__main__" and APART not in os.environ:
    os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], {**os.environ, APART: "1"})

from tenants import BIN, Tenants, make_authority, make_certificate  # noqa: E402: Only in the namespace.

SECRET = "0123456789abcdef0123456789abcdef"


class RemoteMetrics(Tenants):
    TCP = False
    CONFIG = (f'[auth]\ntokens = true\npeers = true\n[tls]\ncertificate = "FOLDER/server.pem"\nkey = "FOLDER/server.key"\n'
              f'[metrics]\nlisten = "{HOST}:0"\ntoken_file = "FOLDER/scrape"\n')

    @classmethod
    def prepare(cls):
        for words in ("link set lo up", f"addr add {HOST}/32 dev lo"):
            subprocess.run(["ip", *words.split()], check=True)
        make_authority(cls.folder, "ca")
        make_certificate(cls.folder, "server", "ca", "server", names=f"IP:{HOST}")
        (cls.folder / "scrape").write_text(SECRET)

    def address(self):
        line = re.search(r"Serving metrics and health address=(\S+) tls=(\S+)", self.server.log.read_text())
        self.assertEqual(line.group(2), "yes")
        return line.group(1)

    def get(self, path, credentials=None, ca="ca"):
        request = urllib.request.Request(f"https://{self.address()}{path}", headers={"Authorization": f"Bearer {credentials}"} if credentials else {})
        context = ssl.create_default_context(cafile=str(self.folder / f"{ca}.pem"))
        try:
            with urllib.request.urlopen(request, context=context, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def test_metrics_ask_for_credentials(self):
        code, text = self.get("/metrics")
        self.assertEqual((code, "credentials" in text, "hpvm_" in text), (401, True, False), text)
        code, text = self.get("/metrics", "wrong" * 8)
        self.assertEqual((code, "hpvm_" in text), (401, False), text)
        code, text = self.get("/metrics", SECRET)
        self.assertEqual(code, 200)
        self.assertIn("hpvm_tls_certificate_not_after_seconds", text)
        token = self.ok("token", "create", "--role", "admin", "-o", "json")
        code, text = self.get("/metrics", json.loads(token)["secret"])
        self.assertEqual((code, "hpvm_tls_certificate_not_after_seconds" in text), (200, True), text)

    def test_probes_tell_strangers_no_reasons(self):
        end = time.monotonic() + 30
        while self.get("/readyz")[0] != 200:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        self.assertEqual(json.loads(self.get("/livez")[1])["live"], True)
        self.assertNotIn("sandbox", self.get("/readyz")[1])
        self.ok("cordon", "--reason", "a secret plan")
        try:
            while self.get("/readyz")[0] != 503:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.1)
            self.assertNotIn("plan", self.get("/readyz")[1])
            self.assertIn("closed", self.get("/readyz", SECRET)[1])
        finally:
            self.ok("readmit")

    def test_plain_http_and_strangers_certificates_end_early(self):
        with self.assertRaises((urllib.error.URLError, OSError)):
            urllib.request.urlopen(f"http://{self.address()}/metrics", timeout=10)
        make_authority(self.folder, "stranger")
        with self.assertRaises(urllib.error.URLError):
            self.get("/livez", ca="stranger")

    def test_a_renewed_certificate_needs_no_restart(self):
        make_authority(self.folder, "next")
        make_certificate(self.folder, "renewed", "next", "server", names=f"IP:{HOST}")
        for name in ("server.key", "server.pem"):
            shutil.copy(self.folder / name, self.folder / f"old.{name}")
        try:
            (self.folder / "renewed.key").rename(self.folder / "server.key")
            time.sleep(1.5)  # A certificate and key that do not match are not used.
            self.assertEqual(self.get("/livez")[0], 200)
            (self.folder / "renewed.pem").rename(self.folder / "server.pem")
            end = time.monotonic() + 30
            while True:
                try:
                    self.assertEqual(self.get("/livez", ca="next")[0], 200)
                    break
                except urllib.error.URLError:
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.1)
        finally:
            for name in ("server.key", "server.pem"):
                (self.folder / f"old.{name}").rename(self.folder / name)
            time.sleep(2.5)

    def test_the_configuration_says_what_a_public_address_needs(self):
        for text, wanted in ((f'[metrics]\nlisten = "{HOST}:9464"\n', "needs TLS"),
                             (f'[tls]\ncertificate = "{self.folder}/server.pem"\nkey = "{self.folder}/server.key"\n[metrics]\nlisten = "0.0.0.0:9464"\n',
                              "metrics.token_file")):
            wrong = self.folder / "wrong.toml"
            wrong.write_text(text)
            done = subprocess.run([BIN / "hpvmd", "--config", wrong, "--check-config"], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(wanted, done.stderr + done.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
