#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests tenants end to end: authentication, permissions, isolation between tenants, and records.

    tenants.py BIN_FOLDER [TestCase.test ...]
"""

import contextlib
import grp
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import numpy as np

from e2e import BIN, FAILED, HERE, OK, UNREACHABLE, USAGE, one_node, port

AUTH = 4
IN_OUT = (port("in", "in"), port("out", "out"))
IS_ROOT = os.geteuid() == 0
ALICE, BOB, CAROL = 54321, 54322, 54323  # User and group ids without accounts.
SECRET = re.compile(r"hpvmt?_[0-9a-f]{40,}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def add(amount=1):
    return one_node("add", IN_OUT, [("amount", amount)])


def spin():
    """Returns a graph that runs until it is stopped."""
    return one_node("spin", (port("out", "inout"),), instances="1")


class Server:
    """Server is hpvmd with a configuration of its own, without --dev."""

    def __init__(self, folder, config="", tcp=False):
        self.folder = folder
        self.socket = f"{folder}/s.sock"
        self.unix = f"unix:{self.socket}"
        self.port = free_port() if tcp else 0
        self.tcp = f"127.0.0.1:{self.port}"
        self.log = folder / "hpvmd.log"
        self.state = folder / "state"
        listen = self.unix + (f", {self.tcp}" if tcp else "")
        self.config = folder / "hpvmd.toml"
        self.config.write_text(f'[server]\nlisten = "{listen}"\nstate_dir = "{self.state}"\nsocket_mode = 0o666\n'
                               f'[devices]\nbackends = "cpu"\n{config}')
        self.start()

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([BIN / "hpvmd", "--config", self.config], stderr=log, stdout=log)
        end = time.monotonic() + 60
        while not pathlib.Path(self.socket).exists():
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    def command(self, *arguments, server=None, token=None, variables=None):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HPVM_")}
        environment.update({"HPVM_SERVER": server or self.unix, "XDG_CACHE_HOME": str(self.folder / "cache"), **(variables or {})})
        words = [BIN / "hpvmctl", *map(str, arguments)] + (["--token-file", str(token)] if token else [])
        return words, environment

    def ctl(self, *arguments, server=None, token=None, uid=None, groups=(), variables=None, timeout=60):
        words, environment = self.command(*arguments, server=server, token=token, variables=variables)
        who = {"user": uid, "group": uid, "extra_groups": groups} if uid else {}
        return subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=environment, cwd="/", **who)


class Tenants(unittest.TestCase):
    """Tenants has one daemon for each class, with the class's configuration."""

    CONFIG = ""
    TCP = True

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-tenants-"))
        cls.folder.chmod(0o755)
        shutil.copy(HERE / "kernels.wasm", cls.folder)
        cls.prepare()
        cls.server = Server(cls.folder, cls.CONFIG.replace("FOLDER", str(cls.folder)), cls.TCP)

    @classmethod
    def prepare(cls):
        pass

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        log = cls.server.log.read_text()
        shutil.rmtree(cls.folder)
        assert code == 0, f"hpvmd ended with {code}:\n{log}"

    def ok(self, *arguments, **more):
        done = self.server.ctl(*arguments, **more)
        self.assertEqual(done.returncode, OK, f"{arguments}\n{done.stderr}\n{self.server.log.read_text()[-3000:]}")
        return done.stdout

    def refused(self, code, wants, *arguments, **more):
        done = self.server.ctl(*arguments, **more)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        for want in [wants] if isinstance(wants, str) else wants:
            self.assertIn(want, done.stderr, arguments)
        self.assertNotRegex(done.stdout + done.stderr, SECRET)
        return done

    def tenant(self, name, *options):
        self.ok("tenant", "create", name, *options)
        return self.token(name)

    def token(self, tenant, *options):
        path = self.folder / f"{tenant}-{time.monotonic_ns()}.token"
        self.token_id = self.ok("token", "create", "--tenant", tenant, "--output", path, *options).strip()
        self.assertRegex(self.token_id, r"^tok-[0-9a-f]+$")
        return path

    def whoami(self, **more):
        return json.loads(self.ok("whoami", "-o", "json", **more))

    def graph(self, document, name="g.json"):
        path = self.folder / name
        path.write_text(json.dumps(document))
        np.save(self.folder / "in.npy", np.arange(4, dtype=np.int32))
        return path

    def submit(self, document, *options, **more):
        name = "out" if "spin" in json.dumps(document) else "in"
        return self.ok("submit", self.graph(document), "--input", f"{name}={self.folder}/in.npy", "--detach", *options, **more).strip()

    def state(self, job, **more):
        return json.loads(self.ok("get", job, "-o", "json", **more))

    def await_state(self, job, *states, seconds=30, **more):
        end = time.monotonic() + seconds
        while True:
            text = self.ok("get", job, "-o", "json", **more)
            if any(f'"JOB_STATE_{state}"' in text for state in states):
                return
            self.assertLess(time.monotonic(), end, text)
            time.sleep(0.1)


class OpenMode(Tenants):
    """Without credentials every caller is the default tenant, and the log says so."""

    def test_it_says_so_once(self):
        self.assertEqual(self.server.log.read_text().count("No credentials are configured"), 1)

    def test_who_reaches_the_socket_administers(self):
        me = self.whoami()
        self.assertEqual((me["tenant"], me["role"]), ("local", "admin"))
        self.ok("tenant", "list")

    def test_who_reaches_loopback_uses(self):
        me = self.whoami(server=self.server.tcp)
        self.assertEqual((me["tenant"], me["role"]), ("local", "user"))
        self.ok("quota", server=self.server.tcp)
        self.refused(AUTH, ["PERMISSION_DENIED", "carried no credential"], "tenant", "create", "x", server=self.server.tcp)

    def test_it_listens_nowhere_else(self):
        for listen in ("0.0.0.0:0", "[::]:0", "192.0.2.1:50061"):
            done = subprocess.run([BIN / "hpvmd", "--listen", listen, "--state", self.folder / "other", "--check-config"],
                                  capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0, listen)
            self.assertRegex(done.stderr, "credential|tls|TLS")

    def test_sandbox_shows(self):
        self.submit(add())
        wide = self.ok("devices", "-o", "wide")
        self.assertRegex(wide, r"sandbox: (level [0-4] of 4|not known)")
        self.assertNotIn("sandbox:", self.ok("devices"))
        self.assertIsInstance(json.loads(self.ok("devices", "-o", "json")), list)


CREDENTIALS = "[auth]\ntokens = true\npeers = true\n"


@unittest.skipUnless(IS_ROOT, "administration and clients of other users need root")
class Metrics(Tenants):
    """Tests which metrics of tenants a user of the machine sees, and which the scraper sees."""

    SECRET = "the scraper's own secret"
    CONFIG = CREDENTIALS + '[metrics]\nlisten = "127.0.0.1:0"\ntoken_file = "FOLDER/scrape"\n'

    @classmethod
    def prepare(cls):
        (cls.folder / "scrape").write_text(cls.SECRET + "\n")

    def scrape(self, secret=None):
        address = re.findall(r"Serving metrics and health.*address=(\S+)", self.server.log.read_text())[-1]
        request = urllib.request.Request(f"http://{address}/metrics")
        if secret is not None:
            request.add_header("Authorization", f"Bearer {secret}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def test_metrics_name_tenants_with_a_credential(self):
        token = self.tenant("hidden-one")
        self.ok("wait", self.submit(add(), token=token), token=token)
        end = time.monotonic() + 20
        while 'hpvm_graph_completed_total{tenant="hidden-one",kind="job"} 1' not in self.scrape(self.SECRET)[1]:
            self.assertLess(time.monotonic(), end, self.scrape(self.SECRET))
            time.sleep(0.1)
        for secret in (None, token.read_text().strip()):  # No secret, and a tenant's own user.
            status, text = self.scrape(secret)
            self.assertEqual(status, 200)
            self.assertNotIn("hidden", text)
            self.assertNotIn("tenant=", text)
            self.assertRegex(text, r'(?m)^hpvm_graph_completed_total\{kind="job"\} 1$')
        admin = self.token("local", "--role", "admin")
        self.assertIn('tenant="hidden-one"', self.scrape(admin.read_text().strip())[1])
        status, text = self.scrape("some other secret")
        self.assertEqual(status, 401)
        self.assertNotIn("hpvm_", text)


@unittest.skipUnless(IS_ROOT, "administration and clients of other users need root")
class Tokens(Tenants):
    CONFIG = CREDENTIALS + "failures_per_second_max = 1000\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.ctl("tenant", "create", "blur")
        cls.server.ctl("tenant", "create", "lab")

    def test_a_token_is_its_tenants(self):
        path = self.token("blur")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        for server in (self.server.unix, self.server.tcp):
            me = self.whoami(token=path, server=server)
            self.assertEqual((me["tenant"], me["role"], me["caller"]), ("blur", "user", f"token {self.token_id}"))
        secret = path.read_text().strip()
        for variables in ({"HPVM_TOKEN": secret}, {"HPVM_TOKEN_FILE": str(path)}):
            self.assertEqual(self.whoami(server=self.server.tcp, variables=variables)["tenant"], "blur")

    def test_standard_output_gets_the_secret_once(self):
        done = self.server.ctl("token", "create", "--tenant", "blur")
        self.assertRegex(done.stdout, r"^hpvm_[0-9a-f]{64}\n$")
        self.assertNotRegex(done.stderr, SECRET)
        listed = self.ok("token", "list", "--tenant", "blur", "-o", "json")
        self.assertNotIn(done.stdout.strip(), listed)

    def test_roles(self):
        user, operator = self.token("blur"), self.token("blur", "--role", "operator")
        admin = self.token("blur", "--role", "admin")
        self.refused(AUTH, "PERMISSION_DENIED", "token", "create", token=user)
        self.refused(AUTH, "PERMISSION_DENIED", "tenant", "create", "x", token=operator)
        self.refused(AUTH, "PERMISSION_DENIED", "token", "create", "--role", "admin", token=operator)
        for foreign in ("lab", "no-such-tenant"):
            done = self.server.ctl("token", "create", "--tenant", foreign, token=operator)
            self.assertIn(done.returncode, (AUTH, USAGE))
            self.assertEqual(done.stdout, "")
        self.assertIn("blur", self.ok("tenant", "show", token=user))
        self.refused(USAGE, "NOT_FOUND", "tenant", "show", "lab", token=user)
        mine = self.server.ctl("token", "create", token=operator).stdout
        self.assertRegex(mine, "^hpvm_")
        self.ok("tenant", "create", f"made-{time.monotonic_ns()}", token=admin, server=self.server.tcp)
        self.assertEqual(self.whoami(token=admin, variables={"HPVM_TENANT": "lab"})["tenant"], "lab")
        self.refused(AUTH, "PERMISSION_DENIED", "list", "--tenant", "lab", token=user)

    def test_administrators_hold_and_list_all(self):
        user, admin, other = self.token("blur"), self.token("blur", "--role", "admin"), self.token("lab")
        job, foreign = self.submit(add(), "--hold", token=user), self.submit(add(), "--hold", token=other)
        self.ok("hold", job, "--reason", "maintenance", token=admin)
        self.refused(AUTH, "only an administrator can release it", "release", job, token=user)
        self.assertEqual(json.loads(self.ok("get", job, "-o", "json", token=user))[0]["hold"]["by"], "an administrator")
        self.assertRegex(json.loads(self.ok("get", job, "-o", "json", token=admin))[0]["hold"]["by"], "^token tok-")
        self.refused(USAGE, "NOT_FOUND", "release", foreign, token=user)
        self.refused(AUTH, "for administrators", "list", "--all-tenants", token=user)
        table = self.ok("list", "--all-tenants", "--state", "accepted", token=admin)
        self.assertRegex(table, r"^TENANT +JOB ")
        self.assertRegex(table, rf"(?s)blur +{job}.*lab +{foreign}")
        tenants = [one["tenant"] for one in json.loads(self.ok("list", "--all-tenants", "-o", "json", token=admin))]
        self.assertEqual(tenants, sorted(tenants))
        self.ok("release", job, token=admin)
        self.await_state(job, "SUCCEEDED", token=user)
        self.ok("cancel", foreign, token=other)
        self.assertIn("SetJobHold", self.ok("audit", "list", "--limit", "50"))

    def test_revoked_and_expired(self):
        path = self.token("blur")
        self.ok("token", "revoke", self.token_id)
        self.ok("token", "revoke", self.token_id)
        self.refused(AUTH, ["UNAUTHENTICATED", "revoked", str(path), "hpvmctl token create"], "list", token=path)
        self.assertIn("revoked", self.ok("token", "list", "--tenant", "blur"))
        path = self.token("blur", "--lifetime", "1s")
        time.sleep(1.1)
        self.refused(AUTH, ["UNAUTHENTICATED", "expired"], "list", token=path)
        self.refused(USAGE, "NOT_FOUND", "token", "revoke", "tok-0000")

    def test_a_program_follows_its_token_file(self):
        """A client follows a job beyond the expiry of the token with which it began."""
        path = self.token("blur")
        first = self.token_id
        job = self.submit(spin(), token=path)
        words, environment = self.server.command("wait", job, token=path)
        waiting = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.await_state(job, "RUNNING", token=path)
        self.ok("token", "create", "--tenant", "blur", "--output", path, "--replace")
        self.ok("token", "revoke", first)
        self.ok("cancel", job, token=path)
        self.assertEqual(waiting.wait(30), 5, waiting.stderr.read())
        waiting.stdout.close()
        waiting.stderr.close()

    def test_nothing_and_nonsense(self):
        no_peer = self.server.tcp
        self.refused(AUTH, ["UNAUTHENTICATED", "carried no credential", "--token-file"], "list", server=no_peer)
        for name, text, want in (("empty", "", "is empty"), ("blank", "\n\n", "is empty"), ("bearer", "Bearer hpvm_x", "Bearer"),
                                 ("pem", "-----BEGIN PRIVATE KEY-----\nMIGsecret", "PEM"), ("passwords", "root:x:0:0\n", "not a token"),
                                 ("cut", "hpvm_0123", "damaged"), ("two", ("hpvm_" + "0" * 64 + "\n") * 2, "damaged")):
            path = self.folder / name
            path.write_text(text)
            path.chmod(0o600)
            done = self.refused(USAGE, [want, str(path)], "list", token=path)
            self.assertNotIn("secret", done.stderr)
        self.refused(USAGE, "no-such-file", "list", token=self.folder / "no-such-file")
        self.refused(USAGE, "is a folder", "list", token=self.folder)
        unknown = self.folder / "unknown"
        unknown.write_text("hpvm_" + "0" * 64)
        done = self.refused(AUTH, ["UNAUTHENTICATED", "not known", "warning: others may read"], "list", token=unknown)
        good = self.token("blur")
        done = self.refused(USAGE, ["--token-file", "history"], "list", "--token", good.read_text().strip())
        self.refused(USAGE, "the token's id", "token", "revoke", good.read_text().strip())
        self.refused(USAGE, "is empty", "list", "--token-file", "")
        self.refused(USAGE, "in clear", "list", token=good, server="192.0.2.1:50061")
        self.refused(USAGE, "exists already", "token", "create", "--output", good)
        self.assertRegex(good.read_text(), SECRET)
        # Blanks around the token do no harm.
        good.write_text("  " + good.read_text() + "\r\n\n")
        self.assertEqual(self.whoami(token=good)["tenant"], "blur")

    def test_words_near_the_right_ones(self):
        for words, want in ((("tenant", "craete", "x"), 'did you mean "create"'), (("tenent", "list"), 'did you mean "tenant"'),
                            (("tenant", "quota", "blur", "device-byte=1GiB"), 'did you mean "device-bytes"'),
                            (("tenant", "quota", "blur", "device-bytes=1Gib"), "with a unit"),
                            (("tenant", "quota", "blur", "requests=5/h"), '"/s"'), (("tenant", "create", "Blur"), "a-z"),
                            (("tenant", "set", "blur"), "No change is given"), (("tenant", "set", "blur", "--uid", "nobody-here"), "user"),
                            (("tenant", "set", "blur", "--weight", "0"), "--weight"), (("tenant", "create", "blur"), "ALREADY_EXISTS"),
                            (("tenant", "show", "blurr"), "NOT_FOUND"), (("audit", "verify", "--head", "xyz"), "64 hexadecimal"),
                            (("tenant", "set", "blur", "--add-uid", "0"), "root")):
            self.refused(USAGE, want, *words)

    def test_secrets_stay_where_they_are(self):
        """Secrets are passed in every possible way, and appear in no log, no process list, no file of the state folder."""
        path = self.token("blur")
        secret = path.read_text().strip()
        ticket_socket = socket.socket(socket.AF_UNIX)
        ticket_socket.connect(self.server.socket + ".auth")
        ticket = ticket_socket.makefile().readline().split()[0]
        ticket_socket.close()
        self.assertRegex(ticket, "^hpvmt_")
        job = self.submit(spin(), token=path)
        words, environment = self.server.command("wait", job, variables={"HPVM_TOKEN": secret})
        waiting = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.5)
        lists = b""
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    lists += (entry / "cmdline").read_bytes()
                except OSError:
                    pass
        self.ok("cancel", job, token=path)
        self.assertEqual(waiting.wait(30), 5)
        output = waiting.stdout.read() + waiting.stderr.read()
        waiting.stdout.close()
        waiting.stderr.close()
        self.ok("token", "revoke", self.token_id)
        self.refused(AUTH, "revoked", "list", token=path)
        files = [self.server.log, *(file for file in self.server.state.rglob("*") if file.is_file())]
        self.assertTrue(any(file.name.startswith("identity") for file in files), files)
        digits = secret.removeprefix("hpvm_")
        for planted in (digits.encode(), bytes.fromhex(digits), ticket.removeprefix("hpvmt_").encode()):
            self.assertNotIn(planted, lists + output)
            for file in files:
                self.assertNotIn(planted, file.read_bytes(), file)


@unittest.skipUnless(IS_ROOT, "running clients as other users needs root")
class Tickets(Tenants):
    """Local processes are identified by their user id."""

    CONFIG = "[auth]\npeers = true\n"
    TCP = False

    def test_by_user_id(self):
        self.assertEqual(self.whoami()["role"], "admin")
        self.assertEqual(self.whoami()["caller"], "uid 0")
        self.refused(AUTH, [f"{ALICE}", "--add-uid"], "list", uid=ALICE)
        self.ok("tenant", "create", "blur", "--uid", ALICE)
        self.ok("tenant", "create", "lab")
        me = self.whoami(uid=ALICE)
        self.assertEqual((me["tenant"], me["role"], me["caller"]), ("blur", "user", f"uid {ALICE}"))
        self.refused(AUTH, "PERMISSION_DENIED", "tenant", "list", uid=ALICE)
        self.refused(AUTH, str(BOB), "list", uid=BOB)
        self.refused(USAGE, str(ALICE), "tenant", "set", "lab", "--add-uid", ALICE)
        self.ok("tenant", "set", "lab", "--add-uid", BOB)
        self.assertEqual(self.whoami(uid=BOB)["tenant"], "lab")
        self.ok("tenant", "set", "blur", "--remove-uid", ALICE)
        self.refused(AUTH, str(ALICE), "list", uid=ALICE)

    def test_by_group(self):
        self.refused(USAGE, "neither a group id nor a group's name", "tenant", "create", "staff", "--gid", "nobody-has-this")
        self.ok("tenant", "create", "staff", "--gid", "staff")
        staff = grp.getgrnam("staff").gr_gid
        self.ok("tenant", "create", "games", "--gid", CAROL, "--gid", CAROL + 1)
        self.refused(AUTH, str(CAROL + 2), "list", uid=CAROL + 2, groups=[CAROL + 3])
        self.assertEqual(self.whoami(uid=CAROL + 2, groups=[CAROL + 3, staff])["tenant"], "staff")
        self.assertEqual(self.whoami(uid=CAROL, groups=[staff])["tenant"], "games")  # The primary group takes precedence.
        self.refused(AUTH, "more than one tenant", "list", uid=CAROL + 2, groups=[staff, CAROL + 1])
        self.ok("tenant", "set", "games", "--add-uid", CAROL + 2)
        self.assertEqual(self.whoami(uid=CAROL + 2, groups=[staff, CAROL + 1])["tenant"], "games")
        self.refused(USAGE, str(staff), "tenant", "set", "games", "--add-gid", "staff")
        self.ok("tenant", "set", "staff", "--remove-gid", staff)
        self.refused(AUTH, "a group of this user", "list", uid=CAROL + 3, groups=[staff])
        self.assertEqual(json.loads(self.ok("tenant", "show", "games", "-o", "json"))["gids"], [CAROL, CAROL + 1])

    def test_a_ticket_of_another_daemon_is_fetched_again(self):
        """A client that waits during the daemon's restart continues with a new ticket."""
        job = self.submit(spin())
        words, environment = self.server.command("wait", job)
        waiting = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.await_state(job, "RUNNING")
        self.server.stop(signal.SIGKILL)
        for path in (self.server.socket, self.server.socket + ".auth"):
            pathlib.Path(path).unlink(missing_ok=True)
        self.server.start()
        self.await_state(job, "RUNNING")
        self.ok("cancel", job)
        self.assertEqual(waiting.wait(60), 5, waiting.stderr.read())
        waiting.stdout.close()
        waiting.stderr.close()

    def test_nonsense_is_refused(self):
        path = self.folder / "t"
        path.write_text("hpvm_" + "0" * 64)
        path.chmod(0o600)
        self.refused(AUTH, "auth.tokens", "list", token=path)


@unittest.skipUnless(IS_ROOT, "administration needs root")
class Quotas(Tenants):
    CONFIG = CREDENTIALS

    def use(self, tenant):
        usage = json.loads(self.ok("quota", "--tenant", tenant, "-o", "json"))
        return {one["resource"]: one for one in usage["resources"]}

    def test_requests(self):
        token = self.tenant("hasty", "--quota", "requests=2")
        results = [self.server.ctl("list", token=token) for _ in range(12)]
        over = [done for done in results if done.returncode != OK]
        self.assertTrue(over)
        self.assertIn("RESOURCE_EXHAUSTED", over[0].stderr)
        self.assertIn("requests", over[0].stderr)
        self.assertIn("Try again in", over[0].stderr)
        self.assertGreater(int(self.use("hasty")["requests"]["refused"]), 0)
        time.sleep(1.5)
        self.ok("list", token=token)
        self.ok("tenant", "quota", "hasty", "requests=none")
        for _ in range(6):
            self.ok("list", token=token)

    def test_modules(self):
        token = self.tenant("modular", "--quota", "modules=1")
        self.ok("module", "put", self.folder / "kernels.wasm", token=token)
        self.ok("module", "put", self.folder / "kernels.wasm", token=token)
        other = self.folder / "other.wasm"
        other.write_bytes((self.folder / "kernels.wasm").read_bytes() + b"\0\2\1x")
        # Modules that no graph uses make room.
        self.ok("module", "put", other, token=token)
        use = self.use("modular")["modules"]
        self.assertEqual((use["used"], use["limit"], use["peak"]), ("1", "1", "1"))
        self.ok("tenant", "quota", "modular", "modules=2")
        self.ok("module", "put", self.folder / "kernels.wasm", token=token)
        self.assertEqual(self.use("modular")["modules"]["used"], "2")

    def test_jobs(self):
        token = self.tenant("queue", "--quota", "queued-jobs=2")
        self.ok("tenant", "quota", "queue", "running-jobs=1")
        running = self.submit(spin(), token=token)
        self.await_state(running, "RUNNING", token=token)
        queued = [self.submit(add(n), token=token) for n in range(2)]
        graph = self.graph(add(9))
        self.refused(FAILED, ["RESOURCE_EXHAUSTED", "queued-jobs (2)"], "submit", graph, "--input", f"in={self.folder}/in.npy", token=token)
        text = self.ok("quota", token=token)
        self.assertRegex(text, r"queued-jobs +2 +2 +0 +2 +1")
        self.ok("cancel", running, token=token)
        for job in queued:
            self.ok("wait", job, token=token)
        self.assertEqual(self.use("queue")["queued-jobs"]["used"], "0")

    def test_device_time(self):
        """A tenant's use beyond the limit must be earned back before the next job begins."""
        token = self.tenant("spender", "--quota", "device-seconds=3.6s")
        job = self.submit(spin(), "--deadline", "6s", token=token)
        self.server.ctl("wait", job, token=token)
        use = self.use("spender")["device-seconds"]
        self.assertGreater(int(use["used"]), 3_000_000_000)
        self.assertEqual(use["available"], "0")
        done = self.server.ctl("run", self.graph(add()), "--input", f"in={self.folder}/in.npy", "--deadline", "2s", token=token)
        self.assertNotEqual(done.returncode, OK)
        self.assertRegex(done.stderr, "RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED")
        self.ok("tenant", "quota", "spender", "device-seconds=none")
        self.ok("run", self.graph(add()), "--input", f"in={self.folder}/in.npy", token=token)

    def test_host_bytes(self):
        token = self.tenant("small", "--quota", "host-bytes=1MiB")
        np.save(self.folder / "large.npy", np.zeros(1 << 20, dtype=np.int32))
        graph = self.graph(add(), "large.json")
        self.refused(FAILED, ["RESOURCE_EXHAUSTED", "host-bytes"], "run", graph, "--input", f"in={self.folder}/large.npy", token=token)
        self.assertIn("host-bytes", self.ok("quota", token=token))

    def test_own_defaults_and_others(self):
        token = self.tenant("plain")
        self.ok("tenant", "quota", "plain", "device-bytes=2GiB", "modules=5")
        text = self.ok("tenant", "quota", "plain", "--reset", "modules")
        self.assertRegex(text, r"device-bytes +0 B +2.00 GiB +2.00 GiB")
        self.assertNotIn("modules=5", self.ok("tenant", "show", "plain"))
        self.assertIn("tenant plain", self.ok("quota", token=token))
        self.refused(AUTH, "PERMISSION_DENIED", "tenant", "quota", "plain", "modules=9", token=token)


@unittest.skipUnless(IS_ROOT, "administration needs root")
class Lives(Tenants):
    """Tests a tenant from creation to deletion, and what another tenant sees of it."""

    CONFIG = CREDENTIALS

    def test_disabled_and_enabled(self):
        token = self.tenant("pause")
        first = self.submit(spin(), token=token)
        self.await_state(first, "RUNNING", token=token)
        second = self.submit(add(3), "--after", f"{first}:ended", token=token)
        self.ok("tenant", "disable", "pause", "--reason", "unpaid since May")
        for words in (("list",), ("get", first), ("quota",), ("devices",)):
            self.refused(AUTH, ["PERMISSION_DENIED", "disabled", "unpaid since May"], *words, token=token)
        self.assertIn("unpaid since May", self.ok("tenant", "show", "pause"))
        # An administrator who paused a tenant can list its jobs and cancel them.
        self.assertIn(first, self.ok("--tenant", "pause", "list"))
        self.assertIn("unpaid since May", self.ok("--tenant", "pause", "get", first))
        self.assertIn("CANCELLED", self.ok("--tenant", "pause", "cancel", second).upper())
        self.refused(AUTH, ["PERMISSION_DENIED", "disabled"], "--tenant", "pause", "retry", second)
        # Its executor ends, its jobs stay.
        time.sleep(1)
        self.ok("tenant", "enable", "pause")
        self.await_state(first, "RUNNING", token=token)
        self.ok("cancel", first, token=token)
        self.assertIn("enabled", self.ok("tenant", "list"))

    def test_neighbours_do_not_see_each_other(self):
        alice, bob = self.tenant("alice"), self.tenant("bob")
        job = self.submit(add(5), token=alice)
        self.ok("wait", job, token=alice)
        absent = job[:-4] + ("0000" if job[-4:] != "0000" else "1111")
        for words in (("get",), ("logs",), ("wait",), ("cancel",), ("retry",)):
            foreign, missing = (self.server.ctl(*words, id, token=bob) for id in (job, absent))
            self.assertEqual(foreign.returncode, missing.returncode, foreign.stderr)
            self.assertEqual(foreign.returncode, USAGE, foreign.stderr)
            self.assertEqual(foreign.stderr.replace(job, "X"), missing.stderr.replace(absent, "X"))
        self.assertNotIn(job, self.ok("list", "--all", token=bob))
        self.refused(USAGE, "NOT_FOUND", "wait", job, "-O", f"out_out={self.folder}/stolen.npy", token=bob)
        self.assertFalse((self.folder / "stolen.npy").exists())
        # One tenant's upload is unknown to the other, even by its hash.
        own = self.folder / "own.wasm"
        own.write_bytes((self.folder / "kernels.wasm").read_bytes() + b"\0\2\1y")
        digest = self.ok("module", "put", own, token=alice).strip()
        document = add(1)
        document["modules"]["k"]["source"] = {"sha256": digest}
        self.ok("run", self.graph(document, "h.json"), "--input", f"in={self.folder}/in.npy", token=alice)
        done = self.server.ctl("run", self.graph(document, "h.json"), "--input", f"in={self.folder}/in.npy", token=bob)
        self.assertEqual(done.returncode, USAGE, done.stderr)
        # A name that one tenant has used is free for the other.
        for token in (alice, bob):
            self.submit(add(7), "--idempotency-key", "same", token=token)
        self.assertIn("bob", self.ok("quota", token=bob))
        self.refused(USAGE, "NOT_FOUND", "tenant", "show", "alice", token=bob)
        self.assertIn(job, self.ok("list", "--tenant", "alice"))


def openssl(folder, *words):
    done = subprocess.run(["openssl", *map(str, words)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def make_authority(folder, name):
    openssl(folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key", "-out",
            f"{name}.pem", "-days", "2", "-subj", f"/CN={name}")


def make_certificate(folder, name, authority, common_name, *, names="", days="2"):
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key", "-out",
            f"{name}.csr", "-subj", f"/CN={common_name}")
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={names}\n" if names else "extendedKeyUsage=clientAuth\n")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days",
            days, "-extfile", extensions, "-out", f"{name}.pem")


@unittest.skipUnless(IS_ROOT and shutil.which("openssl"), "needs root, and openssl to make certificates")
class Tls(Tenants):
    CONFIG = CREDENTIALS + ("certificates = true\n[tls]\ncertificate = \"FOLDER/server.pem\"\nkey = \"FOLDER/server.key\"\n"
                            "client_ca = \"FOLDER/ca.pem\"\nclient_certificates = \"optional\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n")

    @classmethod
    def prepare(cls):
        make_authority(cls.folder, "ca")
        make_authority(cls.folder, "other")
        make_certificate(cls.folder, "server", "ca", "server", names="DNS:hpvmd.test,IP:127.0.0.1")
        make_certificate(cls.folder, "client", "ca", "blur client")
        make_certificate(cls.folder, "nobody", "ca", "nobody")
        make_certificate(cls.folder, "forged", "other", "blur client")

    def certificate(self, name, ca="ca"):
        return ("--ca", self.folder / f"{ca}.pem", "--cert", self.folder / f"{name}.pem", "--key", self.folder / f"{name}.key")

    def setUp(self):
        if self.server.ctl("tenant", "show", "blur").returncode != OK:
            self.ok("tenant", "create", "blur", "--certificate-name", "blur client")

    def test_certificates_are_tenants(self):
        me = json.loads(self.ok("whoami", "-o", "json", *self.certificate("client"), server=self.server.tcp))
        self.assertEqual((me["tenant"], me["role"], me["caller"]), ("blur", "user", "certificate cn=blur client"))
        variables = {"HPVM_CA": f"{self.folder}/ca.pem", "HPVM_CERT": f"{self.folder}/client.pem", "HPVM_KEY": f"{self.folder}/client.key"}
        self.assertEqual(self.whoami(server=f"https://{self.server.tcp}", variables=variables)["tenant"], "blur")
        self.refused(AUTH, ["UNAUTHENTICATED", "nobody", "nobody.pem"], "list", *self.certificate("nobody"), server=self.server.tcp)
        self.refused(AUTH, "PERMISSION_DENIED", "tenant", "list", *self.certificate("client"), server=self.server.tcp)
        # The server does not trust this certificate: the connection fails.
        done = self.server.ctl("list", "--connect-timeout", "3", *self.certificate("forged"), server=self.server.tcp)
        self.assertIn(done.returncode, (AUTH, UNREACHABLE), done.stderr)

    def metrics(self):
        address = re.search(r"Serving metrics and health address=(\S+)", self.server.log.read_text()).group(1)
        text = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
        return {name: float(value) for name, value in re.findall(r"^(hpvm_tls\S+) (\S+)$", text, re.M)}

    def wait_for(self, holds):
        end = time.monotonic() + 30
        while not holds():
            self.assertLess(time.monotonic(), end, self.server.log.read_text()[-3000:])
            time.sleep(0.1)

    def test_renewals_that_do_not_fit_are_said_and_not_shown(self):
        """A renewal with the key of another certificate leaves the previous pair in force."""
        loaded = self.server.log.read_text().count("A TLS certificate was loaded")
        end = self.metrics()["hpvm_tls_certificate_not_after_seconds"]
        self.assertAlmostEqual(end, time.time() + 2 * 86400, delta=3600)
        make_certificate(self.folder, "renewed", "ca", "server", names="DNS:hpvmd.test,IP:127.0.0.1", days="30")
        (self.folder / "renewed.key").rename(self.folder / "server.key")
        self.wait_for(lambda: self.metrics()["hpvm_tls_certificate_refused"] == 1)
        self.ok("whoami", *self.certificate("client"), server=self.server.tcp)
        self.assertEqual(self.metrics()["hpvm_tls_certificate_not_after_seconds"], end)
        time.sleep(2.5)
        log = self.server.log.read_text()
        self.assertEqual(log.count("The TLS files were rejected"), 1, log)
        self.assertIn("does not belong to the certificate", log)
        (self.folder / "renewed.pem").rename(self.folder / "server.pem")
        self.wait_for(lambda: self.metrics()["hpvm_tls_certificate_refused"] == 0)
        self.assertGreater(self.metrics()["hpvm_tls_certificate_not_after_seconds"], end + 27 * 86400)
        log = self.server.log.read_text()
        self.assertEqual(log.count("A TLS certificate was loaded"), loaded + 1)
        self.assertRegex(log, r'A TLS certificate was loaded subject="CN=server" not_after=\d{4}-\S+Z')
        self.ok("whoami", *self.certificate("client"), server=self.server.tcp)

    def test_tokens_over_tls(self):
        token = self.token("blur")
        ca = ("--ca", self.folder / "ca.pem")
        me = json.loads(self.ok("whoami", "-o", "json", *ca, token=token, server=self.server.tcp))
        self.assertEqual((me["tenant"], me["caller"]), ("blur", f"token {self.token_id}"))
        self.refused(AUTH, ["UNAUTHENTICATED", "carried no credential"], "list", *ca, server=self.server.tcp)

    def test_wrong_files_and_doors(self):
        tcp, ca = self.server.tcp, ("--ca", self.folder / "ca.pem")
        begin = time.monotonic()
        self.refused(AUTH, "no authority of", "list", "--ca", self.folder / "other.pem", server=tcp)
        self.refused(AUTH, "no authority of this system", "list", server=f"https://{tcp}")
        self.refused(AUTH, "another name", "list", *ca, "--server-name", "elsewhere.test", server=tcp)
        self.assertLess(time.monotonic() - begin, 10, "the error must come at once, not after the connect timeout")
        self.ok("whoami", *self.certificate("client"), "--server-name", "hpvmd.test", server=tcp)
        done = self.refused(UNREACHABLE, "https://", "list", "--connect-timeout", "1", server=tcp)
        self.refused(USAGE, "does not belong", "list", *ca, "--cert", self.folder / "client.pem", "--key", self.folder / "nobody.key", server=tcp)
        self.refused(USAGE, "holds a private key", "list", *ca, "--cert", self.folder / "client.key", "--key", self.folder / "client.pem",
                     server=tcp)
        self.refused(USAGE, "needs its private key", "list", *ca, "--cert", self.folder / "client.pem", server=tcp)
        self.refused(USAGE, "Unix socket", "list", *ca)
        # The environment names TLS files; they may be meant for another server.
        files = {"HPVM_CA": f"{self.folder}/ca.pem", "HPVM_CERT": f"{self.folder}/client.pem", "HPVM_KEY": f"{self.folder}/client.key"}
        self.assertEqual(self.whoami(variables=files)["role"], "admin")
        self.refused(USAGE, "http", "list", *ca, server=f"http://{tcp}")
        with socket.socket() as plain:
            plain.bind(("127.0.0.1", 0))
            plain.listen()
            self.refused(UNREACHABLE, "over TLS", "list", "--connect-timeout", "0.5", *ca, server=f"127.0.0.1:{plain.getsockname()[1]}")


@unittest.skipUnless(shutil.which("openssl"), "openssl is needed to make certificates")
class CheckConfig(unittest.TestCase):
    """--check-config reports every error that prevents a start; such a start ends with 2, after which systemd does not restart."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-check-"))
        self.addCleanup(shutil.rmtree, self.folder)
        make_authority(self.folder, "ca")
        make_certificate(self.folder, "server", "ca", "server", names="IP:127.0.0.1")
        make_certificate(self.folder, "another", "ca", "another", names="IP:127.0.0.1")

    def check(self, key="server", state="state", start=False):
        config = self.folder / "hpvmd.toml"
        config.write_text(f'[server]\nlisten = "unix:{self.folder}/s, 127.0.0.1:0"\nstate_dir = "{self.folder}/{state}"\n'
                          f'[tls]\ncertificate = "{self.folder}/server.pem"\nkey = "{self.folder}/{key}.key"\n')
        done = subprocess.run([BIN / "hpvmd", "--config", config] + ([] if start else ["--check-config"]), capture_output=True, text=True,
                              timeout=60)
        return done.returncode, done.stderr

    def test_every_file_is_opened_and_nothing_made(self):
        self.assertEqual(self.check(), (0, ""))
        self.assertFalse((self.folder / "state").exists())
        self.assertFalse((self.folder / "s").exists())

    def test_each_fault_is_said(self):
        (self.folder / "file").write_text("")
        (self.folder / "open.key").write_bytes((self.folder / "server.key").read_bytes())
        (self.folder / "open.key").chmod(0o644)
        for arguments, wants in (({"key": "another"}, ["does not belong"]), ({"key": "open"}, ["may be read by others"]),
                                 ({"key": "missing"}, ["missing.key"]), ({"state": "file"}, ["is not a folder"]),
                                 ({"key": "open", "state": "file"}, ["may be read by others", "is not a folder"])):
            for start in (False, True):
                with self.subTest(arguments=arguments, start=start):
                    code, text = self.check(start=start, **arguments)
                    self.assertEqual(code, 2, text)
                    for want in wants:
                        self.assertIn(want, text)
        (self.folder / "server.pem").unlink()
        code, text = self.check()
        self.assertEqual(code, 2)
        self.assertIn("server.pem", text)


@unittest.skipUnless(IS_ROOT, "administration needs root")
class Accounts(Tenants):
    CONFIG = CREDENTIALS

    def usage(self, *arguments, **more):
        """Returns the report as JSON."""
        return json.loads(self.ok("usage", "-o", "json", *arguments, **more))

    def await_use(self, wants, *arguments, **more):
        """Waits until the use equals the amounts named in `wants`."""
        end = time.monotonic() + 20
        while True:
            total = self.usage(*arguments, **more)["total"]
            if all(total[name] == want for name, want in wants.items()):
                return total
            self.assertLess(time.monotonic(), end, (wants, total))
            time.sleep(0.2)

    def test_use_outlives_a_killed_daemon(self):
        token, other = self.tenant("spender"), self.tenant("idler")
        graph = self.graph(add())
        for _ in range(3):
            self.ok("run", graph, "--input", f"in={self.folder}/in.npy", token=token)
        self.await_state(self.submit(add(), token=token), "SUCCEEDED", token=token)
        spinning = self.submit(spin(), token=token)
        self.await_state(spinning, "RUNNING", token=token)
        self.ok("cancel", spinning, token=token)
        self.await_state(spinning, "CANCELLED", token=token)
        wants = {"runs": 3, "jobs_succeeded": 1, "jobs_failed": 0, "jobs_cancelled": 1}
        before = self.await_use(wants, token=token)
        for name in ("device_ns", "requests", "request_bytes"):
            self.assertGreater(before[name], 0, before)
        time.sleep(3)  # The last records of the calls above are written, too.
        before = self.await_use(wants, token=token)
        self.assertEqual(self.server.stop(signal.SIGKILL), -signal.SIGKILL)
        self.server.start()
        after = self.await_use(wants, token=token)
        self.assertEqual(after, before)
        self.ok("run", self.graph(add()), "--input", f"in={self.folder}/in.npy", token=token)
        self.assertGreater(self.await_use({**wants, "runs": 4}, token=token)["requests"], before["requests"])
        self.what_is_shown(token, other)
        self.backup()

    def what_is_shown(self, token, other):
        """Each tenant sees its own use; administrators see all; CSV and tables agree."""
        self.assertEqual(self.usage(token=other)["total"]["runs"], 0)
        self.refused(USAGE, "NOT_FOUND", "usage", "--all-tenants", token=other)
        for whose in ("spender", "nobody"):
            self.refused(AUTH, "PERMISSION_DENIED", "usage", "--tenant", whose, token=other)
        self.ok("run", self.graph(add()), "--input", f"in={self.folder}/in.npy", token=other)
        self.await_use({"runs": 1}, token=other)
        everyone = self.usage("--all-tenants", "--by", "tenant")
        self.assertEqual([account["tenant"] for account in everyone["accounts"]], ["idler", "spender"])
        self.assertEqual(sum(account["runs"] for account in everyone["accounts"]), everyone["total"]["runs"])
        today = time.strftime("%Y-%m-%d", time.gmtime())
        days = self.usage("--tenant", "spender", "--days", "2")
        self.assertEqual(sum(account["runs"] for account in days["accounts"]), 4)
        self.assertEqual(days["last_day"], today)
        self.assertEqual(self.usage("--tenant", "spender", "--from", "2020-01-01", "--to", "2020-12-31")["accounts"], [])
        lines = self.ok("usage", "--all-tenants", "--by", "month", "--csv").splitlines()
        self.assertEqual(lines[0].split(",")[:4], ["period", "tenant", "device_seconds", "compile_seconds"])
        self.assertTrue(any(line.startswith(f"{today[:7]},spender,") for line in lines), lines)
        table = self.ok("usage", "--all-tenants", "--by", "tenant")
        self.assertRegex(table, r"(?m)^TENANT +DEVICE +COMPILE +REQUESTS")
        self.assertRegex(table, r"(?m)^total ")
        for words in (("--days", "3", "--from", today), ("--from", "2026-02-30"), ("--all-tenants", "--tenant", "x")):
            self.assertEqual(self.server.ctl("usage", *words).returncode, USAGE, words)

    def backup(self):
        done = subprocess.run([BIN / "hpvmd", "--config", self.server.config, "--backup", self.folder / "backup"], capture_output=True, text=True)
        self.assertEqual(done.returncode, OK, done.stderr)
        copy = self.folder / "backup/accounts.sqlite"
        self.assertEqual(copy.stat().st_mode & 0o777, 0o600)
        with contextlib.closing(sqlite3.connect(copy)) as database:
            self.assertEqual(database.execute("SELECT SUM(runs) FROM accounts WHERE tenant = 'spender'").fetchone(), (4,))


@unittest.skipUnless(IS_ROOT, "administration needs root")
class Configuration(Tenants):
    CONFIG = CREDENTIALS

    def print_config(self, config):
        done = subprocess.run([BIN / "hpvmd", "--config", config, "--print-config"], capture_output=True, text=True)
        self.assertEqual(done.returncode, OK, done.stderr)
        return done.stdout

    def facts(self):
        return json.loads(self.ok("server", "config", "-o", "json"))

    def test_the_configuration_in_force(self):
        """The file, the server's answer and the printed configuration agree; reloads and pending changes show."""
        printed = self.print_config(self.server.config)
        facts = self.facts()
        self.assertEqual(facts["toml"], printed)
        self.assertEqual(facts["sha256"], hashlib.sha256(printed.encode()).hexdigest())
        self.assertEqual((facts["file"], facts["awaiting_restart"]), (str(self.server.config), []))
        self.assertIn('backends = "cpu"  # from the file\n', printed)
        self.assertIn("running_max = 64  # default\n", printed)
        again = self.folder / "again.toml"
        again.write_text(printed)
        self.assertEqual(re.sub(" +# .*", "", self.print_config(again)), re.sub(" +# .*", "", printed))
        text = self.server.config.read_text()
        self.server.config.write_text(text.replace("[server]\n", "[server]\nreserve_bytes = 1048576\n") + "[jobs]\nrunning_max = 63\n")
        self.server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while (later := self.facts())["sha256"] == facts["sha256"]:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        self.assertIn("running_max = 63  # from the file\n", later["toml"])
        self.assertEqual(later["awaiting_restart"], ["server.reserve_bytes"])
        self.assertGreater(int(later["loaded_unix_ns"]), int(facts["loaded_unix_ns"]))
        self.assertIn(later["sha256"], self.server.log.read_text())
        shown = self.ok("server", "config")
        self.assertIn("# server.reserve_bytes has another value in the file, which takes effect at the next restart\n", shown)
        self.assertTrue(shown.endswith(later["toml"]))
        self.assertEqual(self.ok("server", "config", "-o", "name").strip(), later["sha256"])
        self.refused(AUTH, "PERMISSION_DENIED", "server", "config", token=self.tenant("curious"))


@unittest.skipUnless(IS_ROOT, "administration needs root")
class AuditRetention(Tenants):
    CONFIG = CREDENTIALS + "[audit]\nfile_bytes_max = 65536\n"

    def test_old_files_go(self):
        """Old audit files are deleted by size, once a reload asks for it; the remaining ones are complete, and record the deletion."""
        folder = self.server.state / "audit"
        self.submit(add(), "--array", "0-799")
        end = time.monotonic() + 120
        while len(list(folder.glob("audit-*.jsonl"))) < 4:  # Each element that ends gets a line.
            self.assertLess(time.monotonic(), end)
            time.sleep(0.2)
        with self.server.config.open("a") as config:
            config.write("bytes_max = 100000\n")
        self.server.process.send_signal(signal.SIGHUP)
        while "audit.bytes_max says so" not in self.ok("audit", "list", "--method", "audit retention"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.2)
        self.assertLessEqual(len(list(folder.glob("audit-*.jsonl"))), 3)
        self.assertIn("are missing, and were not checked", self.ok("audit", "verify"))
        self.assertIn("intact and in order", self.ok("audit", "verify", self.server.state))


@unittest.skipUnless(IS_ROOT, "administration needs root")
class Audit(Tenants):
    CONFIG = CREDENTIALS

    def test_what_was_done_is_written_and_whole(self):
        token = self.tenant("recorded")
        self.ok("tenant", "disable", "recorded", "--reason", "x")
        self.refused(AUTH, "disabled", "list", token=token)
        self.ok("tenant", "enable", "recorded")
        self.ok("token", "revoke", self.token_id)
        self.refused(AUTH, "revoked", "list", token=token)
        records = [json.loads(line) for line in self.ok("audit", "list", "-o", "json").splitlines()]
        methods = [record["method"].rsplit("/", 1)[-1] for record in records]
        for want in ("CreateTenant", "CreateToken", "UpdateTenant", "RevokeToken"):
            self.assertIn(want, methods)
        # Each record belongs to the tenant that it concerns, whoever acted.
        own = self.ok("audit", "list", "-o", "json", "--tenant", "recorded")
        for want in ("CreateTenant", "CreateToken", "UpdateTenant", "RevokeToken"):
            self.assertIn(f"Admin/{want}", own)
        self.assertTrue(any(record["verdict"] != "ok" for record in records), records)
        self.assertTrue(all(not SECRET.search(json.dumps(record)) for record in records))
        self.filters()
        verdict = json.loads(self.ok("audit", "verify", "-o", "json"))
        self.assertEqual(verdict["first"], 1)
        self.refused(AUTH, "PERMISSION_DENIED", "audit", "list", token=self.token("recorded"))
        self.tamper(verdict)

    def filters(self):
        def listed(*words):
            return [json.loads(line) for line in self.ok("audit", "list", "-o", "json", *words).splitlines()]

        everything = listed()
        self.assertEqual(listed("--since", "1d"), everything)
        self.assertEqual(listed("--until", "1d"), [])
        self.assertEqual(listed("--since", everything[-1]["time"][:10])[-1]["seq"], everything[-1]["seq"])
        made = listed("--method", "CreateToken")
        self.assertEqual({record["method"] for record in made}, {"/hpvm.v1.Admin/CreateToken"})
        self.assertEqual(listed("--method", "CreateToken", "--limit", "1"), made[:1])
        self.assertEqual(made, listed("--method", "/hpvm.v1.Admin/CreateToken", "--who", "uid 0"))
        self.assertEqual(listed("--who", "nobody at all"), [])
        table = self.ok("audit", "list", "--method", "CreateToken").splitlines()
        self.assertRegex(table[0], r"^RECORD +TIME +VERDICT +WHO +TENANT +METHOD +OBJECT")
        self.assertEqual(table[1].index("CreateToken"), table[0].index("METHOD"))
        self.refused(USAGE, "neither a time before now", "audit", "list", "--since", "yesterday")

    def test_offline_tokens(self):
        """A misspelt tenant gets no token; a file for the secret is readable by its owner only, and replaces no other file."""
        state, output = self.folder / "offline", self.folder / "admin.token"
        def create(tenant, *more):
            return subprocess.run([BIN / "hpvmd", "--state", state, "--create-token", tenant, "--role", "admin", *more],
                                  capture_output=True, text=True)
        mask = os.umask(0o022)
        try:
            ghost = create("ghost", "--output", output)
            self.assertEqual((ghost.returncode, ghost.stdout), (1, ""))
            self.assertIn('There is no tenant "ghost"', ghost.stderr)
            self.assertIn("(the tenants are: local)", ghost.stderr)
            self.assertFalse(output.exists())
            made = create("local", "--output", output)
            self.assertEqual((made.returncode, made.stdout), (0, ""), made.stderr)
            self.assertRegex(output.read_text(), r"^hpvm_\S+\n$")
            self.assertEqual(output.stat().st_mode & 0o777, 0o600)
            again = create("local", "--output", output)
            self.assertEqual(again.returncode, 1)
            self.assertIn("exists already", again.stderr)
        finally:
            os.umask(mask)

    def test_backups(self):
        """Only the owner can read a backup; it contains the audit; one command revokes again the tokens revoked since."""
        token = self.tenant("kept")
        backup, config = self.folder / "backup", self.folder / "restored.toml"
        np.save(self.folder / "in.npy", np.arange(4, dtype="f4"))
        self.ok("run", self.graph(add()), "--input", f"in={self.folder}/in.npy", token=token)
        mask = os.umask(0o022)
        end = time.monotonic() + 20
        while not (self.server.state / "spent.json").exists():  # The file is written within seconds of a tenant's use.
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        try:
            done = subprocess.run([BIN / "hpvmd", "--config", self.server.config, "--backup", backup], capture_output=True, text=True)
        finally:
            os.umask(mask)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("It does not hold", done.stdout)
        self.assertIn('"requests"', (backup / "spent.json").read_text())
        for path in backup.rglob("*"):
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)
        self.assertIn("intact and in order", self.ok("audit", "verify", backup))
        self.ok("token", "revoke", self.token_id)
        for path in backup.glob("*.*"):
            path.chmod(0o644)
        listen = f"unix:{self.folder}/restored.sock"
        config.write_text(self.server.config.read_text().replace(str(self.server.state), str(backup)).replace(self.server.socket, listen[5:])
                          .replace(f", {self.server.tcp}", ""))

        def restored(*arguments):
            with (self.folder / "restored.log").open("ab") as log:
                daemon = subprocess.Popen([BIN / "hpvmd", "--config", config], stderr=log, stdout=log)
            try:
                while not pathlib.Path(listen[5:]).exists():
                    self.assertIsNone(daemon.poll(), (self.folder / "restored.log").read_text())
                    time.sleep(0.05)
                return self.server.ctl(*arguments, server=listen, token=token)
            finally:
                daemon.terminate()
                daemon.wait(60)

        self.assertEqual(restored("whoami").returncode, OK)  # The token was valid when the backup was made.
        for path in backup.glob("*.*"):
            self.assertEqual(path.stat().st_mode & 0o077, 0, path)
        self.assertIn("modes of these parts were restricted", (self.folder / "restored.log").read_text())
        done = subprocess.run([BIN / "hpvmd", "--config", config, "--revoke-all-tokens"], capture_output=True, text=True)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertRegex(done.stdout, r"^[1-9]\d* tokens")
        refused = restored("whoami")
        self.assertEqual(refused.returncode, AUTH, refused.stdout)
        self.assertIn("revoked", refused.stderr)
        self.assertIn("--revoke-all-tokens", "".join(path.read_text() for path in (backup / "audit").glob("audit-*")))
        done = subprocess.run([BIN / "hpvmd", "--state", self.folder / "none", "--revoke-all-tokens"], capture_output=True, text=True)
        self.assertEqual(done.returncode, FAILED, done.stdout)
        self.assertFalse((self.folder / "none").exists())

    def tamper(self, verdict):
        """Changes a copy of the state folder, without the server."""
        noted = f"{verdict['last']}:{verdict['head']}"
        copy = self.folder / "copy"
        shutil.copytree(self.server.state / "audit", copy / "audit")
        text = self.ok("audit", "verify", copy, "--head", noted)
        self.assertIn("intact and in order", text)
        self.assertIn("noted head", self.ok("audit", "verify", copy, "--head", verdict["head"]))
        (file,) = (copy / "audit").glob("audit-*.jsonl")
        whole = file.read_bytes()
        for at in range(0, len(whole), max(1, len(whole) // 40)):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            self.refused(FAILED, "DATA_LOSS", "audit", "verify", copy)
        lines = whole.splitlines(keepends=True)
        for name, changed in (("one taken out", lines[:2] + lines[3:]), ("two swapped", [lines[1], lines[0], *lines[2:]]),
                              ("one twice", lines[:1] + lines), ("cut within a line", [whole[:-5]])):
            file.write_bytes(b"".join(changed))
            self.refused(FAILED, "DATA_LOSS", "audit", "verify", copy)
        file.write_bytes(b"".join(lines[:int(verdict["last"]) - 1]))
        self.ok("audit", "verify", copy)
        for head in (noted, verdict["head"]):
            self.refused(FAILED, "DATA_LOSS", "audit", "verify", copy, "--head", head)
        self.refused(USAGE, "no file audit-N.jsonl", "audit", "verify", self.folder)


class Completion(unittest.TestCase):
    def test_new_words(self):
        script = subprocess.run([BIN / "hpvmctl", "completion", "bash"], capture_output=True, text=True).stdout
        for words, want in ((("ten",), "tenant"), (("tenant", "cr"), "create"), (("token", "rev"), "revoke"), (("audit", "ver"), "verify"),
                            (("who",), "whoami"), (("token", "create", "--role", "op"), "operator"),
                            (("tenant", "create", "--wei"), "--weight"), (("list", "--token-f"), "--token-file")):
            line = " ".join(words)
            done = subprocess.run(["bash", "-c", script + f'\nCOMP_WORDS=(hpvmctl {line}); COMP_CWORD={len(words)}; _hpvmctl; echo "${{COMPREPLY[@]}}"'],
                                  text=True, capture_output=True)
            self.assertEqual(done.stdout.strip(), want, done.stderr)
        self.assertNotIn("--token ", script)
        fish = subprocess.run([BIN / "hpvmctl", "completion", "fish"], capture_output=True, text=True).stdout
        self.assertIn("-a whoami", fish)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
