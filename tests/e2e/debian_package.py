#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests deploy/package.sh: the Debian packages are installed, upgraded, removed and purged on a clean Debian.

    debian_package.py BUILD_FOLDER

The Debian is minimal: it has the dependencies of the packages and nothing else, so that a missing dependency shows. It is made once and kept
in the build folder; each test works in an overlay over it. Commands run in it through bwrap, since containers do not let executors make
namespaces in a plain chroot. systemd does not run: a stand-in records the requests of maintainer scripts, and the test starts the daemon
as the installed unit specifies. The script needs root, and on its first run a Debian mirror.
"""

import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
APART = "HPVMD_TEST_APART"  # Set in a process that has its own mount namespace.
# Messages that show that no mirror can be reached.
NO_MIRROR = re.compile(r"Temporary failure resolving|Could not resolve|Could not connect|Unable to connect|Network is unreachable")
UNIT = "lib/systemd/system/hpvmd.service"
SYSTEMCTL = """#!/bin/sh
echo "$@" >>/systemctl.log
case "$*" in *is-enabled*) exec /bin/systemctl --root=/ "$@" ;; esac
"""


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def packages_of(folder):
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb")}


def later_ones(packages, folder):
    """Returns the same packages with the next revision, which apt takes as newer."""
    folder.mkdir()
    for name, package in packages.items():
        run("dpkg-deb", "-R", package, folder / name)
        control = folder / name / "DEBIAN/control"
        version = field(package, "Version")
        control.write_text(control.read_text().replace(version, version.removesuffix("1") + "2"))
        run("dpkg-deb", "-Znone", "--root-owner-group", "-b", folder / name, folder / f"{name}_2.deb")
    return packages_of(folder)


def field(package, name):
    return run("dpkg-deb", "-f", package, name).strip()


def asked_for(packages):
    """Returns the first alternative of each dependency, except dependencies among the packages themselves."""
    names = set()
    for package in packages.values():
        for clause in filter(None, field(package, "Depends").split(",")):
            names.add(re.match(r"\s*([a-z0-9.+-]+)", clause)[1])
    return sorted(names - set(packages))


def base_with(names):
    """Returns a folder with a Debian that has these packages; creates it if it is missing."""
    place = BUILD / "debian-base" / hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    if not place.exists():
        shutil.rmtree(place.parent, ignore_errors=True)  # Bases for other dependencies.
        made = place.with_suffix(".new")
        made.parent.mkdir()
        done = subprocess.run([ROOT / "deploy/base.sh", made, *names], capture_output=True, text=True)
        if done.returncode != 0:
            shutil.rmtree(made, ignore_errors=True)
            if NO_MIRROR.search(done.stderr):
                raise unittest.SkipTest("no mirror of Debian can be reached")
            raise AssertionError(done.stderr[-3000:])
        made.rename(place)
    return place


class Machine:
    def __init__(self, base, folder):
        self.root = folder / "root"
        self.daemon = None
        for name in ("up", "work", "root", "run"):
            (folder / name).mkdir()
        run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={base},upperdir={folder}/up,workdir={folder}/work", self.root)
        self.log = folder / "hpvmd.log"
        # /run persists between commands; /proc, /dev and /tmp need not.
        self.bwrap = ["bwrap", "--bind", self.root, "/", "--bind", folder / "run", "/run", "--proc", "/proc", "--dev", "/dev", "--ro-bind", "/sys", "/sys",
                      "--chdir", "/root", "--clearenv", "--setenv", "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                      "--setenv", "HOME", "/root", "--setenv", "LC_ALL", "C.UTF-8", "--setenv", "DEBIAN_FRONTEND", "noninteractive",
                      "--cap-add", "ALL", "--die-with-parent"]
        self.run = folder / "run"
        # The settings that excluded documentation from the base must not exclude ours.
        for file in (self.root / "etc/dpkg/dpkg.cfg.d").glob("*mmdebstrap*"):
            file.unlink()

    def command(self, *words):
        return [str(word) for word in [*self.bwrap, *words]]

    def do(self, *words, code=0):
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=120)
        log = self.log.read_text()[-2000:] if self.log.exists() else ""
        assert done.returncode == code, f"{' '.join(map(str, words))} ended with {done.returncode}\n{done.stdout}{done.stderr}\n{log}"
        return done.stdout + done.stderr

    def install(self, *packages):
        (self.root / "srv").mkdir(exist_ok=True)
        for package in packages:
            shutil.copy(package, self.root / "srv")
        return self.do("dpkg", "-i", *[f"/srv/{package.name}" for package in packages])

    def settings(self, name):
        return re.findall(rf"^{name}=(.*)$", (self.root / UNIT).read_text(), re.M)

    def start(self):
        """Starts the daemon as the unit specifies: command, user, folders, and no capability."""
        (user,), (group,), (command,) = self.settings("User"), self.settings("Group"), self.settings("ExecStart")
        self.do("install", "-d", "-m", self.settings("RuntimeDirectoryMode")[0], "-o", user, "-g", group, f"/run/{self.settings('RuntimeDirectory')[0]}")
        as_user = ["setpriv", "--reuid", user, "--regid", group, "--init-groups", "--inh-caps", "-all", "--bounding-set", "-all", "--no-new-privs"]
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen(self.command(*as_user, *shlex.split(command)), stdout=log, stderr=log)
        end = time.monotonic() + 60
        while not (self.run / "hpvmd/hpvmd.sock").exists():  # hpvmctl finds the server by this socket.
            assert self.daemon.poll() is None and time.monotonic() < end, self.log.read_text()[-2000:]
            time.sleep(0.05)
        self.do("hpvmctl", "--connect-timeout", "30", "whoami")

    def stop(self):
        """Sends SIGTERM to the daemon itself; its parent, bwrap, waits for it."""
        (child,) = pathlib.Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children").read_text().split()
        os.kill(int(child), 15)
        code = self.daemon.wait(60)
        self.daemon = None
        assert code == 0, self.log.read_text()[-2000:]

    def close(self):
        if self.daemon is not None:
            self.daemon.kill()  # Because of --die-with-parent this also ends the daemon's processes.
            self.daemon.wait()
        run("umount", "--lazy", self.root)


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="hpvmd-package-")
        cls.folder = pathlib.Path(cls.temporary.name)
        run(ROOT / "deploy/package.sh", "--fast", "--build", BUILD, "--output", cls.folder / "1")
        cls.revisions = [packages_of(cls.folder / "1")]
        cls.revisions.append(later_ones(cls.revisions[0], cls.folder / "2"))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_what_is_in_them(self):
        first = self.revisions[0]
        self.assertLessEqual({"hpvmd", "hpvm-client", "hpvm-engine"}, set(first))
        version = re.search(r"^project\(hpvmd VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
        for name, package in first.items():
            self.assertEqual(field(package, "Version"), f"{version}-1")
            listed = run("dpkg-deb", "-c", package).splitlines()
            files = {line.split(None, 5)[5].split(" -> ")[0][1:]: line for line in listed}
            self.assertIn(f"/usr/share/doc/{name}/copyright", files)
            for path, line in files.items():
                self.assertRegex(line, r"^[-dl]\S+ root/root ", path)
                self.assertNotRegex(line[:10], r"^[-d].{4}w|^[-d].{7}w", f"{path} can be written by others")
                self.assertRegex(path, r"^/((usr|lib|etc|usr/share|lib/systemd)?/?$|usr/|etc/hpvm/|etc/logrotate\.d/|lib/systemd/system/)")
            control = self.folder / f"control-{name}"
            run("dpkg-deb", "-e", package, control)
            kept = (control / "conffiles").read_text().split() if (control / "conffiles").exists() else []
            self.assertEqual(sorted(kept), sorted(path for path in files if path.startswith("/etc/") and not path.endswith("/")), name)
        depends = {name: field(package, "Depends") for name, package in first.items()}
        self.assertIn(f"hpvm-engine (= {version}-1)", depends["hpvmd"])
        self.assertIn("libllvm22", depends["hpvm-engine"])
        for name in ("hpvmd", "hpvm-client"):  # A client depends on no compiler.
            self.assertNotRegex(depends[name], "llvm|clang")
        self.assertIn(f"hpvm-engine (= {version}-2)", field(self.revisions[1]["hpvmd"], "Depends"))

    def test_from_install_to_purge(self):
        base = base_with(asked_for(self.revisions[0]))
        place = self.folder / "machine"
        place.mkdir()
        run("mount", "-t", "tmpfs", "-o", "mode=0755", "machine", place)
        machine = Machine(base, place)
        try:
            self.client_alone(machine)
            self.installed(machine)
            self.at_work(machine)
            self.backed_up(machine)
            self.upgraded(machine)
            self.removed(machine)
        finally:
            machine.close()
            run("umount", "--lazy", place)

    def client_alone(self, machine):
        machine.install(self.revisions[0]["hpvm-client"])
        self.assertRegex(machine.do("hpvmctl", "--version"), r"\d+\.\d+")
        said = machine.do("hpvmctl", "run", "--local", "/usr/share/hpvm/examples/mandelbrot/mandelbrot.json", "--symbol", "w=8", "--symbol", "h=8",
                          "-O", "image=x.png", code=2)
        self.assertIn("hpvm-executor", said)
        self.assertIn("complete", (machine.root / "usr/share/bash-completion/completions/hpvmctl").read_text())
        self.assertIn(".SH", run("gzip", "-dc", machine.root / "usr/share/man/man1/hpvmctl.1.gz"))

    def installed(self, machine):
        machine.install(*[package for name, package in self.revisions[0].items() if name != "hpvm-client"])
        user = machine.do("getent", "passwd", "hpvm").strip().split(":")
        self.assertEqual(user[5:], ["/var/lib/hpvmd", "/usr/sbin/nologin"])
        self.assertLessEqual({"hpvm", "video", "render"}, set(machine.do("id", "-nG", "hpvm").split()))
        for folder in ("/var/lib/hpvmd", "/var/backups/hpvmd"):
            self.assertEqual(machine.do("stat", "-c", "%a %U %G", folder).strip(), "700 hpvm hpvm", folder)
        wanted = machine.root / "etc/systemd/system"
        self.assertTrue((wanted / "multi-user.target.wants/hpvmd.service").is_symlink())
        self.assertFalse((wanted / "timers.target.wants/hpvmd-backup.timer").is_symlink(), "Backups must stay disabled until the administrator enables them.")
        checked = machine.do("systemd-analyze", "verify", *[f"/lib/systemd/system/{name}" for name in
                                                           ("hpvmd.service", "hpvmd-backup.service", "hpvmd-backup.timer")])
        self.assertEqual([line for line in checked.splitlines() if "hpvmd" in line], [])
        self.assertIn("valid", machine.do("runuser", "-u", "hpvm", "--", "hpvmd", "--config", "/etc/hpvm/hpvmd.toml", "--check-config"))
        self.assertFalse((machine.run / "hpvmd").exists(), "No process may run without systemd.")

    def at_work(self, machine):
        import numpy as np
        rng = np.random.default_rng(1)
        a, b = (rng.random((64, 64), dtype=np.float32) for _ in range(2))
        home = machine.root / "root"
        np.save(home / "A.npy", a)
        np.save(home / "B.npy", b)
        machine.start()
        for verb in (["run"], ["submit"], ["run", "--local"]):
            machine.do("hpvmctl", *verb, "/usr/share/hpvm/examples/matmul/matmul.json", "-i", "A=A.npy", "-i", "B=B.npy", "-O", "C=C.npy")
            np.testing.assert_allclose(np.load(home / "C.npy"), a @ b, rtol=1e-4)
            (home / "C.npy").unlink()
        self.assertRegex(machine.do("hpvmctl", "devices"), "cpu:0")
        refused = machine.do("runuser", "-u", "nobody", "--", "hpvmctl", "--connect-timeout", "1", "--patience", "1s", "devices", code=7)
        self.assertIn("hpvmd.sock", refused)  # The packaged socket is open only to the daemon's user and root.

    def backed_up(self, machine):
        (backup,) = re.findall(r"^ExecStart=(.*)$", (machine.root / "lib/systemd/system/hpvmd-backup.service").read_text(), re.M)
        program, folder, _ = backup.split()
        for _ in range(3):
            machine.do("runuser", "-u", "hpvm", "--", program, folder, "2")
            time.sleep(1.01)  # The names contain a time in seconds.
        names = sorted(path.name for path in (machine.root / folder[1:]).iterdir())
        self.assertEqual(len(names), 2, names)
        self.assertFalse([name for name in names if name.endswith(".new")])
        machine.do("runuser", "-u", "hpvm", "--", program, folder, "none", code=2)

    def upgraded(self, machine):
        """Upgrades with a running daemon, a configuration changed by the administrator, and a systemd that only records requests."""
        config = machine.root / "etc/hpvm/hpvmd.toml"
        config.write_text(config.read_text().replace("running_per_tenant_max = 16", "running_per_tenant_max = 8"))
        own = config.read_text()
        (machine.run / "systemd/system").mkdir(parents=True)
        stand_in = machine.root / "usr/local/sbin/systemctl"
        stand_in.write_text(SYSTEMCTL)
        stand_in.chmod(0o755)
        self.asked(machine)
        machine.install(*self.revisions[1].values())
        self.assertRegex(self.asked(machine), r"(?m)^restart hpvmd\.service$")
        self.assertEqual(config.read_text(), own)
        self.assertRegex(machine.do("dpkg-query", "-W", "hpvmd"), r"-2$")
        machine.stop()
        machine.start()
        self.assertIn("matmul", machine.do("hpvmctl", "list", "--all"))
        # A policy that forbids starting services is obeyed.
        policy = machine.root / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        machine.install(self.revisions[1]["hpvmd"])
        self.assertNotRegex(self.asked(machine), r"(?m)^(re)?start ")
        policy.unlink()
        # A disabled service is not started either.
        machine.do("/bin/systemctl", "--root=/", "disable", "hpvmd.service")
        machine.install(self.revisions[1]["hpvmd"])
        self.assertFalse((machine.root / "etc/systemd/system/multi-user.target.wants/hpvmd.service").is_symlink())

    def asked(self, machine):
        """Returns the arguments of systemctl calls since the last time, without options."""
        log = machine.root / "systemctl.log"
        text = log.read_text() if log.exists() else ""
        log.write_text("")
        return "".join(" ".join(word for word in line.split() if not word.startswith("-")) + "\n" for line in text.splitlines())

    def removed(self, machine):
        self.asked(machine)
        machine.do("dpkg", "--remove", "hpvmd")
        self.assertRegex(self.asked(machine), r"(?m)^stop .*hpvmd\.service")
        machine.stop()
        for path, stays in (("usr/bin/hpvmd", False), (UNIT, False), ("etc/hpvm/hpvmd.toml", True), ("var/lib/hpvmd/jobs.db", True)):
            self.assertEqual(os.path.lexists(machine.root / path), stays, path)
        machine.install(self.revisions[1]["hpvmd"])
        machine.start()
        self.assertIn("matmul", machine.do("hpvmctl", "list", "--all"))
        machine.stop()
        machine.do("dpkg", "--purge", "hpvmd", "hpvm-client", *[name for name in self.revisions[1] if name == "hpvm-spirv"], "hpvm-engine")
        for path, stays in (("etc/hpvm", False), ("var/lib/hpvmd", False), ("usr/libexec/hpvm", False), ("usr/share/hpvm", False),
                            ("etc/systemd/system/multi-user.target.wants/hpvmd.service", False), ("var/backups/hpvmd", True)):
            self.assertEqual(os.path.lexists(machine.root / path), stays, path)
        machine.do("getent", "passwd", "hpvm")

    def test_a_log_file_is_rotated(self):
        if not shutil.which("logrotate"):
            self.skipTest("logrotate is missing; deploy/setup.sh --tests installs it")
        folder = self.folder / "log"
        folder.mkdir()
        rules = (ROOT / "deploy/packages/hpvmd.logrotate").read_text()
        (folder / "rules").write_text(rules.replace("/var/log/", f"{folder}/"))
        (folder / "rules").chmod(0o644)
        log = folder / "hpvmd.log"
        with open(log, "ab", buffering=0) as written:  # systemd opens the log in the same way.
            written.write(b"before\n")
            run("logrotate", "--force", "--state", folder / "state", folder / "rules")
            written.write(b"after\n")
        self.assertEqual(log.read_text(), "after\n")
        self.assertEqual((folder / "hpvmd.log.1").read_text(), "before\n")


def missing():
    if os.getuid() != 0:
        return "installing packages needs root"
    for program, package in (("mmdebstrap", "mmdebstrap"), ("bwrap", "bubblewrap"), ("dpkg-shlibdeps", "dpkg-dev")):
        if not shutil.which(program):
            return f"{program} is missing; deploy/setup.sh --tests installs {package}"
    return None


if __name__ == "__main__":
    reason = missing()
    if reason is None and APART not in os.environ:
        os.execvpe("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv], {**os.environ, APART: "1"})
    if reason:
        print(f"skipped: {reason}")
        sys.exit(0)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
