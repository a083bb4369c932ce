# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL server for a test, with a folder of its own and a Unix socket only."""

import ctypes
import glob
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

PR_SET_PDEATHSIG = 1


def programs():
    """Returns the folder of PostgreSQL's programs, or None."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    return pathlib.Path(found[-1]).parent if found else None


def _user():
    """Returns the user id under which the server runs, as PostgreSQL refuses root."""
    if os.getuid() != 0:
        return os.getuid()
    try:
        return pwd.getpwnam("postgres").pw_uid
    except KeyError:
        return pwd.getpwnam("nobody").pw_uid


def end_with_parent():
    """For a child before its program: it is killed when the test ends, in whatever way."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    def __init__(self, settings=()):
        self.bin = programs()
        self.user = _user()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-postgres-"))
        if self.user != os.getuid():
            os.chown(self.folder, self.user, -1)
        os.chmod(self.folder, 0o755)
        self.log = open(self.folder / "log", "wb")
        self.process = None
        self._run("initdb", "--pgdata", self.folder / "data", "--username", "hpvm", "--auth", "trust", "--no-sync", "--no-locale",
                  "--encoding", "UTF8")
        with open(self.folder / "data/postgresql.conf", "a") as file:
            file.write(f"listen_addresses = ''\nunix_socket_directories = '{self.folder}'\nmax_connections = 60\n")
            for name, value in settings:
                file.write(f"{name} = '{value}'\n")

    def _as_user(self):
        if self.user != os.getuid():
            os.setgid(pwd.getpwuid(self.user).pw_gid)
            os.setgroups([])
            os.setuid(self.user)
        end_with_parent()

    def _run(self, program, *arguments):
        subprocess.run([self.bin / program, *map(str, arguments)], check=True, stdout=self.log, stderr=self.log,
                       preexec_fn=self._as_user, cwd="/")

    def start(self):
        self.process = subprocess.Popen([self.bin / "postgres", "-D", self.folder / "data"], stdout=self.log, stderr=self.log,
                                        preexec_fn=self._as_user, cwd="/")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.query("SELECT 1", check=False) == "1":
                return
            if self.process.poll() is not None:  # The former one's processes may still end.
                self.process = subprocess.Popen([self.bin / "postgres", "-D", self.folder / "data"], stdout=self.log,
                                                stderr=self.log, preexec_fn=self._as_user, cwd="/")
            time.sleep(0.1)
        raise AssertionError("PostgreSQL did not start:\n" + (self.folder / "log").read_text()[-2000:])

    def dsn(self, host=None):
        return f"host={host or self.folder} user=hpvm dbname=postgres"

    def query(self, text, check=True):
        done = subprocess.run([self.bin / "psql", "--no-psqlrc", "-d", self.dsn(), "-At", "-c", text], capture_output=True,
                              text=True, timeout=60)
        if check and done.returncode != 0:
            raise AssertionError(f"{text}: {done.stderr}")
        return done.stdout.strip()

    def stop(self, how=signal.SIGINT):
        """Ends it: SIGINT in order, SIGQUIT as a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def close(self):
        self.stop(signal.SIGQUIT)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
