#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every command of docs/OPERATIONS.md and docs/TENANTS.md, in the documents' order, as an operator would type it.

    documents.py BIN_FOLDER

The commands are read from the documents: lines of sh blocks, indented lines, and commands within sentences. They run as root at their own paths, on a
separate machine: namespaces of mounts, processes and the network, with this machine's files beneath an overlay, so that users, owners, ports and
/usr/bin are real and no change stays. Only systemctl and journalctl are stand-ins (operations.py). RULES has the values that a sentence leaves open
(an ID, an expected file), and NOT_RUN the commands that cannot run here, with the reason; a command that is neither plain nor listed fails the test.
"""

import ctypes
import fcntl
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import operations
from operations import BIN, ROOT, VERSION, Systemd, pack

PROGRAMS = set("hpvmctl hpvmd hpvm-bench systemctl journalctl runuser sed cat mv cp rm df du dmesg usermod useradd chronyc smartctl grep chmod chown"
               " install tar curl ln mkdir jq".split())
DOCUMENTS = ("OPERATIONS", "TENANTS")

NOT_RUN = {
    "dmesg": "it is the kernel's own log, of which a container has none",
    "journalctl -k | grep -i oom": "it is the kernel's own log, of which a container has none",
    "chronyc tracking": "chrony is not ours, and need not be installed",
    "systemctl enable --now hpvmd-backup.timer": "the packages have the timer; debian_package.py runs what it starts",
    "hpvmctl cluster hosts": "the machine of the test is no host of a cluster; ctl_cluster.py runs it",
    "hpvm-bench service --filter submit": "it measures for minutes; the daemon's archive does not bring it",
}

EXAMPLE = "/usr/share/hpvm/examples/mandelbrot/mandelbrot.json"
WORK = pathlib.Path("/srv/work")


class Command:
    def __init__(self, document, line, text, kind, output=()):
        self.document, self.line, self.text, self.kind, self.output = document, line, text, kind, list(output)

    def __str__(self):
        return f"docs/{self.document}.md:{self.line}: {self.text}"


def is_command(text):
    words = text.split()
    return bool(words) and words[0] in PROGRAMS and (len(words) > 1 or text in NOT_RUN)


def commands_of(document):
    """Returns the commands in order. An indented command has the output that the document shows."""
    found, fence, shown = [], None, None
    lines = (ROOT / f"docs/{document}.md").read_text().splitlines()
    prose = []
    for number, line in enumerate(lines, 1):
        kept = ""
        if line.startswith("```"):
            fence = None if fence is not None else line[3:]
            shown = None
        elif fence is not None:
            if fence == "sh" and line.strip():
                found.append((number, 0, Command(document, number, line, "block")))
        elif line.startswith("    "):
            text = re.sub(r"\s{2,}# .*", "", line.strip())
            if text.startswith("$ ") or is_command(text):
                shown = Command(document, number, text.removeprefix("$ "), "indented")
                found.append((number, 0, shown))
            elif shown is not None and lines[number - 2].startswith("    "):
                shown.output.append(line.strip())
        else:
            shown, kept = None, line
        prose.append(kept)
    text = "\n".join(prose)
    for match in re.finditer(r"`([^`]+)`", text):
        span = " ".join(match.group(1).split())
        if is_command(span):
            number = text.count("\n", 0, match.start()) + 1
            found.append((number, match.start(), Command(document, number, span, "sentence")))
    return [command for _, _, command in sorted(found, key=lambda entry: entry[:2])]


class Rule:
    """Rule says what to type for a command, what to run before and after it, and how it ends."""

    def __init__(self, typed=None, before="", after="", code=0, prints=""):
        self.typed, self.before, self.after, self.code, self.prints = typed, before, after, code, prints


# Values that sentences leave open, as shell text, so that each is evaluated when it is needed.
A_JOB = f"$(hpvmctl submit --detach {EXAMPLE} --symbol w=16 --symbol h=16 | cut -d' ' -f1)"
A_TOKEN = "$(hpvmctl token create --tenant lab --output /tmp/doomed.token | grep -o 'tok-[0-9a-f]*')"
CERTIFICATE = ("cd /etc/hpvm && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost"
               " -addext subjectAltName=DNS:localhost -keyout privkey.pem -out fullchain.pem 2>/dev/null")
JSON_LOG = "sed -i 's/^format = .*/format = \"json\"/' /etc/hpvm/hpvmd.toml && systemctl restart hpvmd"
TEXT_LOG = "sed -i 's/^format = .*/format = \"text\"/' /etc/hpvm/hpvmd.toml && systemctl restart hpvmd"
TLS = (r"""sed -i -e 's|^listen = "unix.*|listen = "unix:/run/hpvmd/hpvmd.sock,127.0.0.1:50061"|'"""
       r""" -e 's|^certificate = .*|certificate = "/etc/hpvm/server.pem"|' -e 's|^key = .*|key = "/etc/hpvm/server.pem"|' /etc/hpvm/hpvmd.toml"""
       " && chmod 600 /etc/hpvm/server.pem && chown hpvm /etc/hpvm/server.pem && systemctl restart hpvmd"
       " && hpvmctl --server https://localhost:50061 --ca /etc/hpvm/fullchain.pem --token-file admin.token whoami | grep -q admin")

PACKAGES = "apt-get install -y ./hpvmd_VERSION-1_amd64.deb ./hpvm-engine_VERSION-1_amd64.deb ./hpvm-client_VERSION-1_amd64.deb"
RULES = {
    # The rest of the page is tested with the archive; debian_package.py tests the packages.
    PACKAGES: Rule(
        typed=f"{PACKAGES} >/dev/null 2>&1; hpvmd --config /etc/hpvm/hpvmd.toml --check-config && hpvmctl run --local {EXAMPLE} --symbol w=16"
              " --symbol h=16 -O image=/tmp/packaged.png && getent passwd hpvm",
        after="dpkg --purge hpvmd hpvm-client hpvm-engine && userdel hpvm && rm -r /var/backups/hpvmd && ! [ -e /usr/bin/hpvmd ]",
        prints="^hpvm:"),
    # The document says that most machines set these; here they also keep the machine's GPUs out.
    "install -m 0644 /usr/share/hpvm/hpvmd.toml /etc/hpvm/hpvmd.toml": Rule(
        after=r"""sed -i -e '/^\[metrics\]/,/^\[/ s|^listen = .*|listen = "127.0.0.1:9464"|' -e 's|^backends = .*|backends = "cpu"|' /etc/hpvm/hpvmd.toml"""),
    "usermod -aG video,render hpvm": Rule(before="groupadd -f video; groupadd -f render"),
    "systemctl is-active hpvmd": Rule(prints="^active$"),
    "runuser -u hpvm --": Rule(typed="runuser -u hpvm -- hpvmd --config /etc/hpvm/hpvmd.toml --check-config", prints="valid"),
    "hpvmctl devices": Rule(prints=r"cpu:0"),
    "hpvmctl tenant create lab --uid alice": Rule(before="useradd alice"),
    "runuser -u hpvm -- hpvmd --config /etc/hpvm/hpvmd.toml --create-token local --role admin --output /var/lib/hpvmd/admin.token": Rule(
        after="mv /var/lib/hpvmd/admin.token ."),
    "hpvmctl token create --tenant lab": Rule(before="hpvmctl --token-file admin.token whoami | grep -q admin"),
    "hpvmctl token revoke ID": Rule(typed=f"hpvmctl token revoke {A_TOKEN}",
                                    after="! hpvmctl --token-file /tmp/doomed.token whoami 2>/tmp/refused && grep -q UNAUTHENTICATED /tmp/refused"),
    "cat privkey.pem fullchain.pem > server.pem.new": Rule(typed="cd /etc/hpvm && cat privkey.pem fullchain.pem > server.pem.new", before=CERTIFICATE),
    "mv server.pem.new server.pem": Rule(typed="cd /etc/hpvm && mv server.pem.new server.pem", after=TLS),
    "hpvmctl tenant set lab --remove-certificate-name NAME": Rule(
        typed="hpvmctl tenant set lab --remove-certificate-name 'a laptop'", before="hpvmctl tenant set lab --add-certificate-name 'a laptop'"),
    "journalctl -u hpvmd": Rule(prints="Serving"),
    "hpvmctl jobs get ID": Rule(typed=f"hpvmctl jobs get {A_JOB}", prints="mandelbrot"),
    "journalctl -u hpvmd | grep job=ID": Rule(typed=f"job={A_JOB}; hpvmctl jobs wait $job; journalctl -u hpvmd | grep job=$job"),
    """jq 'select(.job=="ID")'""": Rule(
        typed=f"""job={A_JOB}; hpvmctl jobs wait $job; journalctl -u hpvmd | grep '^{{' | jq "select(.job==\\"$job\\")" """,
        before=JSON_LOG, after=TEXT_LOG, prints='"job"'),
    "systemctl stop": Rule(typed="systemctl stop hpvmd", after="systemctl start hpvmd"),
    "runuser -u hpvm -- hpvmd --config /etc/hpvm/hpvmd.toml --revoke-all-tokens": Rule(
        before="systemctl stop hpvmd",
        after="systemctl start hpvmd; ! hpvmctl --token-file admin.token whoami 2>/tmp/refused && grep -q UNAUTHENTICATED /tmp/refused"),
    "systemctl stop hpvmd && rm -r /var/lib/hpvmd/cache": Rule(),
    "journalctl -u hpvmd | grep -i tls": Rule(prints="certificate"),
    'hpvmctl hold JOB --reason "…"': Rule(
        typed=f"job=$(hpvmctl submit -d --hold {EXAMPLE} --symbol w=16 --symbol h=16) && hpvmctl hold $job --reason 'the lab moves' && hpvmctl release $job"),
    'hpvmctl device pause vulkan:0 --reason "new firmware"': Rule(typed='hpvmctl device pause cpu:0 --reason "new firmware"'),
    "hpvmctl device resume vulkan:0": Rule(typed="hpvmctl device resume cpu:0"),
    "hpvmctl doctor": Rule(before="hpvmctl readmit"),  # An earlier sentence has drained it.
    "hpvmctl device resume": Rule(typed="hpvmctl device resume cpu:0"),
    "hpvmctl device resume DEVICE": Rule(typed="hpvmctl device resume cpu:0"),
    "hpvmd --config /etc/hpvm/hpvmd.toml --rename-tenant OLD NEW": Rule(
        typed="runuser -u hpvm -- hpvmd --config /etc/hpvm/hpvmd.toml --rename-tenant renamed lab-two", before="hpvmctl tenant create renamed && systemctl stop hpvmd",
        after="systemctl start hpvmd && hpvmctl tenant show lab-two", prints="lab-two"),
    "hpvmd --device-health": Rule(code=1),  # The library that it asks is missing.
    "hpvmctl jobs cancel ID": Rule(typed=f"hpvmctl jobs cancel {A_JOB}"),
    "hpvmctl retry ID": Rule(typed=f"job={A_JOB}; hpvmctl jobs wait $job; hpvmctl retry --detach $job"),
    "hpvmctl run --check GRAPH": Rule(typed=f"hpvmctl run --check {EXAMPLE} --symbol w=16 --symbol h=16"),
    "hpvmd --check-jobs --state /var/lib/hpvmd": Rule(before="systemctl stop hpvmd", after="systemctl start hpvmd"),
    'curl -fsS -H "Authorization: Bearer $(cat /etc/hpvm/scrape.token)" http://127.0.0.1:9464/metrics': Rule(
        before="sed -i 's|^token_file = .*|token_file = \"/etc/hpvm/scrape.token\"|' /etc/hpvm/hpvmd.toml && systemctl restart hpvmd"
               " && ! curl -fsS http://127.0.0.1:9464/metrics | grep -q tenant=",
        prints='tenant="'),
    "chmod 600": Rule(typed="chmod 600 admin.token"),
    "hpvmctl tenant create blur --weight 200 --quota device-bytes=2GiB --quota device-seconds=1h": Rule(before="useradd bob; useradd carol"),
    "hpvmctl token create --tenant blur --output blur.token": Rule(
        after="[ $(stat -c %a blur.token) = 600 ] && hpvmctl --token-file blur.token whoami | grep -q blur"),
    "hpvmctl --tenant NAME list": Rule(typed="hpvmctl --tenant blur list"),
    "hpvmctl audit list --tenant blur": Rule(prints="CreateToken"),
    "hpvmctl audit verify /backup/hpvmd": Rule(
        before="install -d -m 0700 -o hpvm /backup; runuser -u hpvm -- hpvmd --config /etc/hpvm/hpvmd.toml --backup /backup/hpvmd"),
}
if not (BIN.parent / "CPackConfig.cmake").exists():
    NOT_RUN[PACKAGES] = "a build with sanitizers makes no packages"
    del RULES[PACKAGES]
# Between the documents: the tenants of the second one must not exist yet.
AFRESH = "systemctl stop hpvmd; rm -r /var/lib/hpvmd; systemctl start hpvmd"

STAND_INS = {
    "systemctl": operations.STAND_INS["systemctl"],
    "journalctl": '[ "$1 $2" = "-u hpvmd" ] && exec cat /hpvmd.log',
}


class Plan(unittest.TestCase):
    """Plan needs no machine: every command of the documents is known, and no rule is for a missing command."""

    def test_every_command_is_run_or_listed(self):
        commands = [command for document in DOCUMENTS for command in commands_of(document)]
        texts = {command.text for command in commands}
        self.assertGreater(len(commands), 80)
        self.assertEqual((set(RULES) | set(NOT_RUN)) - texts, set(), "These commands are no longer in the documents.")
        self.assertEqual(set(RULES) & set(NOT_RUN), set())
        unclear = [str(c) for c in commands if re.search(r"\b(ID|NAME|GRAPH|FILE)\b", c.text) and c.text not in RULES and c.text not in NOT_RUN]
        self.assertEqual(unclear, [], "RULES lacks the text to type for these commands.")
        for document in DOCUMENTS:  # Fences of other kinds must not contain commands.
            for body in re.findall(r"```(?!sh\n)[a-z]*\n(.*?)```", (ROOT / f"docs/{document}.md").read_text(), re.S):
                self.assertEqual([line for line in body.splitlines() if is_command(line.strip().removeprefix("$ "))], [], "The block is not marked as sh.")


    def test_the_unit_bounds_its_memory(self):
        text = (ROOT / "deploy/hpvmd.service").read_text()
        high, most = (int(re.search(rf"^{name}=(\d+)%$", text, re.M).group(1)) for name in ("MemoryHigh", "MemoryMax"))
        self.assertLess(50, high)
        self.assertLess(high, most)
        self.assertLess(most, 95, "The machine must keep some memory.")
        explained = (ROOT / "docs/OPERATIONS.md").read_text()
        self.assertIn(f"`MemoryHigh={high}%` and `MemoryMax={most}%`", explained)


class Machine:
    """The machine that Systemd expects; all files are at their real paths."""

    prefix = pathlib.Path("/")
    has_users = True

    @staticmethod
    def moved(text):
        return text


class Documents(unittest.TestCase):
    def sh(self, text, code=0):
        environment = {"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "SYSTEMD": self.systemd.address}
        run = subprocess.run(["bash", "-uo", "pipefail", "-c", text], cwd=WORK, env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, code, f"{text}\n{run.stdout}{run.stderr}\n" + "".join(pathlib.Path("/hpvmd.log").read_text()[-2000:]
                                                                                            if pathlib.Path("/hpvmd.log").exists() else ""))
        return run

    def test_each_command_in_its_order(self):
        WORK.mkdir(parents=True)
        for name, body in STAND_INS.items():
            program = pathlib.Path("/usr/local/sbin") / name
            program.write_text(f"#!/bin/bash\n{body}\n")
            program.chmod(0o755)
        pack(WORK)
        if PACKAGES not in NOT_RUN:
            subprocess.run([ROOT / "deploy/package.sh", "--fast", "--build", BIN.parent, "--output", WORK], check=True)
        self.systemd = Systemd(Machine)
        self.addCleanup(lambda: self.systemd.process and self.systemd.stop())
        ran = 0
        for document in DOCUMENTS:
            if document != DOCUMENTS[0]:
                self.sh(AFRESH)
            for command in commands_of(document):
                if command.text in NOT_RUN:
                    print(f"not run: {command} ({NOT_RUN[command.text]})", flush=True)
                    continue
                with self.subTest(command=str(command)):
                    self.follow(command)
                    ran += 1
        print(f"{ran} commands run", flush=True)

    def follow(self, command):
        rule = RULES.get(command.text, Rule())
        if rule.before:
            self.sh(rule.before)
        try:
            done = self.sh((rule.typed or command.text).replace("VERSION", VERSION), rule.code)
            self.assertRegex(done.stdout, re.compile(rule.prints, re.M))
            self.check_output(command, done.stdout)
        finally:
            if rule.after:
                self.sh(rule.after)
        if command.text.startswith("systemctl daemon-reload") and shutil.which("systemd-analyze"):
            self.check_unit()

    def check_output(self, command, printed):
        """Each line that the document shows must begin like a printed line; the rest may be elided."""
        for line in command.output:
            first = re.match(r"\S+", line).group()
            if first != "...":
                self.assertRegex(printed, rf"(?m)^\s*{re.escape(first)}(\s|$)", f"{command} shows: {line}")

    def check_unit(self):
        done = subprocess.run(["systemd-analyze", "verify", "/etc/systemd/system/hpvmd.service"], capture_output=True, text=True)
        complaints = [line for line in (done.stdout + done.stderr).splitlines() if "hpvmd.service" in line]
        self.assertEqual(complaints, [])


# --- The separate machine ---

SYS_PIVOT_ROOT = 155
MNT_DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True)


def bring_up_loopback():
    with socket.socket() as asked:
        request = struct.pack("16sh22x", b"lo", 1)  # IFF_UP
        fcntl.ioctl(asked, 0x8914, request)  # SIOCSIFFLAGS


def overlay(place):
    """Mounts this machine's files, covered by a writable layer, in a folder below the empty folder `place`."""
    mount("-t", "tmpfs", "-o", "mode=0755", "documents", place)
    for name in ("up", "work", "root"):
        (place / name).mkdir(mode=0o755)
    mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={place}/up,workdir={place}/work", place / "root")
    return place / "root"


def enter(place):
    """Makes the overlay the root of this process, which is already in its own namespaces."""
    root = overlay(place)
    for name in ("tmp", "run"):
        mount("-t", "tmpfs", "-o", "mode=1777" if name == "tmp" else "mode=0755", name, root / name)
    mount("-t", "proc", "proc", root / "proc")
    for name in ("sys", "dev"):
        mount("--rbind", f"/{name}", root / name)
    for folder in {ROOT, BIN}:  # These folders may be on other file systems.
        (root / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
        mount("--bind", folder, root / folder.relative_to("/"))
    shutil.rmtree(root / "etc/hpvm", ignore_errors=True)
    os.chdir(root)
    check(libc.syscall(SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")
    bring_up_loopback()


def main():
    if "--inside" in sys.argv:
        enter(pathlib.Path(sys.argv[sys.argv.index("--inside") + 1]))
        unittest.main(argv=[sys.argv[0], "Documents"], verbosity=2)
    if "--try" in sys.argv:
        overlay(pathlib.Path(sys.argv[sys.argv.index("--try") + 1]))
        sys.exit(0)
    plan = unittest.main(argv=[sys.argv[0], "Plan"], verbosity=2, exit=False)
    apart = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    with tempfile.TemporaryDirectory(prefix="hpvmd-documents-") as place:
        tried = subprocess.run([*apart, sys.executable, *sys.argv, "--try", place], capture_output=True)
        if os.getuid() != 0 or tried.returncode != 0:
            print("skipped: a separate machine needs root, namespaces and overlays; operations.py follows the document under a prefix")
            sys.exit(0 if plan.result.wasSuccessful() else 1)
        process = subprocess.Popen([*apart, sys.executable, *sys.argv, "--inside", place])
        try:
            code = process.wait(500)
        finally:
            process.kill()  # This also ends every process that is left on the machine.
    sys.exit(code if plan.result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
