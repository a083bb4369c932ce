# SPDX-License-Identifier: Apache-2.0
"""The daemon under test and its clients as processes, in a folder of their own: every program is started from there, so
that the command line identifies the processes of this test."""

import dataclasses
import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import threading
import time

PROGRAMS = ("hpvmd", "hpvm-executor", "hpvm-compiler", "libhpvm-spirv.so")
START_SECONDS_MAX = 20


@dataclasses.dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    state: str
    start: int        # Ticks since the machine started.
    name: str
    arguments: tuple


def read_process(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
        arguments = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 1:].split()
    return Process(pid, int(fields[1]), fields[0], int(fields[19]), stat[stat.index("(") + 1:stat.rindex(")")],
                   tuple(part.decode(errors="replace") for part in arguments.split(b"\0")[:-1]))


def processes():
    found = (read_process(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return [process for process in found if process is not None]


class Daemon:
    """Daemon is hpvmd with its state, its configuration and its log."""

    def __init__(self, binaries, folder):
        self.folder = pathlib.Path(folder)
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True)
        for program in PROGRAMS:
            source = pathlib.Path(binaries) / program
            if source.exists():
                try:
                    os.link(source, self.bin / program)
                except OSError:
                    shutil.copy2(source, self.bin / program)
        self.state = self.folder / "state"
        self.socket = self.folder / "hpvmd.sock"
        self.config = self.folder / "hpvmd.toml"
        self.log = self.folder / "hpvmd.log"
        self.log.touch()
        self.process = None
        self.start_seconds = []   # Seconds from each start to the first connection.

    def write_config(self, values, broken=""):
        """Replaces the configuration in one step. `values`: {"section.key": value}."""
        sections = {}
        for name, value in values.items():
            section, key = name.split(".")
            text = f'"{value}"' if isinstance(value, str) else str(value).lower()
            sections.setdefault(section, []).append(f"{key} = {text}\n")
        text = "".join(f"[{section}]\n" + "".join(lines) for section, lines in sections.items()) + broken
        partial = self.config.with_suffix(".new")
        partial.write_text(text)
        partial.rename(self.config)

    def launch(self, failpoints="", mutant=""):
        environment = {**os.environ, "HPVMD_FAILPOINTS": failpoints, "HPVMD_MUTANT": mutant}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([self.bin / "hpvmd", "--config", self.config], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env=environment)

    def await_serving(self):
        """Returns false when the daemon ended first; it may have been told to die at its start."""
        begin = time.monotonic()
        while time.monotonic() - begin < START_SECONDS_MAX:
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(self.socket))
                    self.start_seconds.append(time.monotonic() - begin)
                    return True
                except OSError:
                    pass
            if self.process.poll() is not None:
                return False
            time.sleep(0.003)
        raise TimeoutError(f"hpvmd does not serve {START_SECONDS_MAX} s after its start:\n{self.tail()}")

    def start(self, **more):
        self.launch(**more)
        if not self.await_serving():
            raise RuntimeError(f"hpvmd ended at its start with {self.process.returncode}:\n{self.tail()}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def signal(self, number):
        self.process.send_signal(number)

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def tail(self, size=3000):
        return self.log.read_text(errors="replace")[-size:]

    def family(self):
        """Returns every process started from the folder, dead or alive, except the daemon."""
        mark = str(self.folder)
        own = self.process.pid if self.process else -1
        found = []
        for process in processes():
            is_ours = any(mark in argument for argument in process.arguments)
            if process.pid != own and ((is_ours and "hpvm-chaos-client" not in process.arguments[0]) or
                                       (process.state == "Z" and process.parent == own)):
                found.append(process)
        return found

    def executors(self):
        return [p for p in self.family() if p.arguments and p.arguments[0].endswith("hpvm-executor") and
                p.parent == self.process.pid and not any(a.startswith("--probe") for a in p.arguments)]

    def compilers(self):
        """Returns the compilers, without their children that compile one module each: the death of such a child counts as the
        module's fault, as a compile beyond its limits does, and the module is refused."""
        executors = {p.pid for p in self.executors()}
        return [p for p in self.family() if p.arguments and p.arguments[0].endswith("hpvm-compiler") and p.parent in executors]

    def leftover_files(self):
        """Returns files that belong to a process of a daemon that has ended, and unfinished files."""
        left = [str(self.socket)] if self.socket.exists() else []
        if not self.state.exists():
            return left
        for path in self.state.rglob("*"):
            name = path.name
            if (path.parent.name == "executors" or name.startswith((".partial-", ".driver-", "hpvm-run-")) or
                    "tmp" in name or name.endswith((".partial", ".new"))):
                left.append(str(path))
        return left

    def command(self, *arguments):
        return subprocess.run([self.bin / "hpvmd", "--config", self.config, *arguments], capture_output=True, text=True,
                              timeout=300)


class Client:
    """Client is a process of hpvm-chaos-client, which answers each command with one line."""

    def __init__(self, program, daemon, tenant, seed, *more):
        self.program, self.daemon, self.tenant, self.seed, self.more = program, daemon, tenant, seed, more
        self.journal = daemon.folder / f"{tenant}.journal"
        self.generation = 0
        self.at = 0        # Number of bytes read so far.
        self.start()

    def start(self):
        self.generation += 1
        module = pathlib.Path(__file__).resolve().parent.parent / "e2e" / "kernels.wasm"
        self.process = subprocess.Popen(
            [self.program, f"unix:{self.daemon.socket}", self.tenant, self.journal, module,
             str(self.seed + 1000 * self.generation), *map(str, self.more)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.answers = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, self.answers), daemon=True).start()

    @staticmethod
    def _read(process, answers):
        for line in process.stdout:
            answers.put(line.strip())
        answers.put(None)

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def answer(self, timeout=120):
        line = self.answers.get(timeout=timeout)
        if line is None:
            raise RuntimeError(f"the client of {self.tenant} ended with {self.process.wait()}")
        return line

    def ask(self, command, timeout=120):
        self.tell(command)
        return self.answer(timeout)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def new_lines(self):
        """Returns the complete lines added to the journal since the last call."""
        with self.journal.open("rb") as file:
            file.seek(self.at)
            data = file.read()
        data = data[:data.rfind(b"\n") + 1]
        self.at += len(data)
        return [line + "\n" for line in data.decode(errors="replace").split("\n") if line]

    def quit(self):
        try:
            self.tell("quit")
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()
