# SPDX-License-Identifier: Apache-2.0
"""The daemon under attack, its neighbour tenant, and the facts about them that an attacker may know."""

import dataclasses
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import time

import calls
from wire import encode, first

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("hpvmd", "hpvm-executor", "hpvm-compiler", "libhpvm-spirv.so", "hpvmctl")
START_SECONDS_MAX = 60
NEIGHBOUR, ATTACKER, WORKER = "neighbour", "attacker", "worker"
DROPPED_UID = 65534


@dataclasses.dataclass
class Setting:
    """Setting defines how one daemon of a session is started."""
    name: str
    sandbox_max: int = 4
    dropped: bool = False          # As in a plain container: an unprivileged user, no capabilities, no new privileges.
    executor: str = "hpvm-executor-broken"
    devices: str = "cpu"
    drivers: bool = False          # Executors that load drivers, and so may open what drivers need.
    wire: str = "unix"             # Or "tcp", "tls": the transport of floods.
    credentials: bool = False      # With tokens; otherwise each call names its tenant.
    more: dict = dataclasses.field(default_factory=dict)   # {"section.key": value}


def children(pid):
    """Returns all live descendants: {pid: (name, arguments)}."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = pathlib.Path(f"/proc/{entry}/stat").read_text(errors="replace")
            arguments = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        fields = stat[stat.rindex(")") + 1:].split()
        if fields[0] != "Z" and int(fields[1]) == pid:
            found[int(entry)] = (stat[stat.index("(") + 1:stat.rindex(")")], arguments)
            found.update(children(int(entry)))
    return found


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def thread_names(pid):
    names = set()
    for comm in pathlib.Path(f"/proc/{pid}/task").glob("*/comm"):
        try:
            names.add(comm.read_text().strip())
        except OSError:
            pass
    return names


def zombies(pid):
    found = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = pathlib.Path(f"/proc/{entry}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            except OSError:
                continue
            found += fields[0] == "Z" and int(fields[1]) == pid
    return found


class Neighbour:
    """Neighbour is a process that checks every result; the secret is in its inputs, so in its executor's memory."""

    PERIOD_US = 5000

    def __init__(self, target):
        self.log = target.folder / "neighbour.tsv"
        self.log.touch()
        self.at, self.runs = 0, []
        environment = {**os.environ, "LAB_SECRET": target.secret, **target.client_environment(NEIGHBOUR)}
        with (target.folder / "neighbour.err").open("wb") as errors:
            self.process = subprocess.Popen([target.tests / "hpvm-lab-neighbour", target.address, NEIGHBOUR, HERE / "kernels.wasm",
                                             str(self.PERIOD_US), self.log], stdin=subprocess.PIPE, stderr=errors,
                                            env=environment)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.read():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the neighbour does not run: " + (target.folder / "neighbour.err").read_text() + target.tail())
            time.sleep(0.05)

    def read(self):
        """Returns everything so far: [(start_ns, latency_ns, verdict)]."""
        with self.log.open("rb") as file:
            file.seek(self.at)
            data = file.read()
        data = data[:data.rfind(b"\n") + 1]
        self.at += len(data)
        for line in data.decode(errors="replace").splitlines():
            start, latency, verdict = line.split("\t", 2)
            self.runs.append((int(start), int(latency), verdict))
        return self.runs

    def failures(self, since=0):
        return [run for run in self.read()[since:] if run[2] != "ok"]

    def latencies_ms(self, begin_ns, end_ns):
        return sorted(run[1] / 1e6 for run in self.read() if begin_ns <= run[0] and run[0] + run[1] <= end_ns)

    def stop(self):
        self.process.stdin.close()
        self.process.wait(20)


class Target:
    """Target is a daemon of its own in a folder of its own."""

    def __init__(self, build, folder, setting):
        self.setting, self.folder = setting, pathlib.Path(folder) / setting.name
        self.build = pathlib.Path(build)
        self.tests = self.build / "tests"
        self.secret = "LABSECRET" + secrets.token_hex(16)
        self.folder.mkdir(parents=True)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        for program in PROGRAMS:
            if (self.build / "bin" / program).exists():
                shutil.copy2(self.build / "bin" / program, self.bin / program)
        shutil.copy2(self.tests / "hpvm-executor-broken", self.bin)
        self.state = self.folder / "state"
        self.state.mkdir(mode=0o700)
        self.socket = self.folder / "hpvmd.sock"
        self.address = f"unix:{self.socket}"
        self.listen = self.flooded = self.other = self.address
        if setting.wire != "unix":
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                tcp = f"127.0.0.1:{free.getsockname()[1]}"
            self.listen, self.flooded = f"{self.address}, {tcp}", f"tls:{tcp}" if setting.wire == "tls" else tcp
            self.other = self.flooded + "@127.0.0.2"  # A different client address, since limits are by address.
        self.log = self.folder / "hpvmd.log"
        self.log.touch()
        self.uid = DROPPED_UID if setting.dropped and os.geteuid() == 0 else os.geteuid()
        if self.uid != os.geteuid():
            for path in (self.folder, self.state):
                os.chown(path, DROPPED_UID, DROPPED_UID)
        self.tokens, self.apis = {}, {}
        try:
            self.start()
            if setting.credentials:
                self.make_tokens()
            self.plant()
            self.neighbour = Neighbour(self)
        except Exception:
            self.process.kill()
            self.process.wait()
            raise

    # Differences from the defaults: none weakens the defences under attack, except for the breaker, which has an attack of its own.
    def values(self):
        return {"server.listen": f'"{self.listen}"', **self.tls_files(), "server.state_dir": f'"{self.state}"', "server.drain_ms": 3000, "metrics.listen": '"127.0.0.1:0"',
                **({"auth.tokens": "true", "auth.peers": "true"} if self.setting.credentials else {"tenants.from_metadata": "true"}), "devices.backends": f'"{self.setting.devices}"',
                "executor.path": f'"{self.bin / self.setting.executor}"', "executor.sandbox_max": self.setting.sandbox_max,
                "executor.sandbox_min": 0, "executor.crashes_max": 1000, "executor.crash_window_ms": 100,
                "jobs.deadline_default_ms": 20000, **self.setting.more}

    def tls_files(self):
        if self.setting.wire != "tls":
            return {}
        files = {"tls.key": f'"{self.folder}/server.key"', "tls.certificate": f'"{self.folder}/server.pem"'}
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                        self.folder / "server.key", "-out", self.folder / "server.pem", "-subj", "/CN=lab"], check=True, capture_output=True)
        return files

    def start(self):
        sections = {}
        for name, value in self.values().items():
            section, key = name.split(".")
            sections.setdefault(section, []).append(f"{key} = {value}\n")
        config = self.folder / "hpvmd.toml"
        config.write_text("".join(f"[{section}]\n" + "".join(lines) for section, lines in sections.items()))
        command = [self.bin / "hpvmd", "--config", config]
        if self.setting.dropped:
            identity = [] if os.geteuid() != 0 else ["--reuid", str(DROPPED_UID), "--regid", str(DROPPED_UID), "--clear-groups",
                                                     "--bounding-set=-all", "--inh-caps=-all"]
            command = ["setpriv", *identity, "--no-new-privs", "--", *command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/")
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(self.socket))
                    return
                except OSError:
                    pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("hpvmd does not serve: " + self.tail())
            time.sleep(0.02)

    def metadata(self, tenant):
        if self.setting.credentials:
            return [("authorization", f"Bearer {self.tokens[tenant]}")]
        return [("hpvm-tenant", tenant)]

    def client_environment(self, tenant):
        return {"LAB_TOKEN": self.tokens[tenant]} if self.setting.credentials else {}

    def ticket(self):
        """Returns the line that the socket beside the daemon's own has for this process."""
        with socket.socket(socket.AF_UNIX) as plain:
            plain.settimeout(5)
            plain.connect(f"{self.socket}.auth")
            return plain.recv(4096).decode().split()[0]

    def make_tokens(self):
        self.admin = calls.Api(self.address, [("authorization", f"Bearer {self.ticket()}")])
        for tenant in (NEIGHBOUR, ATTACKER, WORKER, "operator"):
            made = self.admin.call("CreateTenant", encode(f2=encode(f1=tenant)), service=calls.ADMIN)
            answer = self.admin.call("CreateToken", encode(f2=tenant, f3=1, f4="lab"), service=calls.ADMIN)
            if not made.ok or not answer.ok:
                raise RuntimeError(f"no token for {tenant}: {made} {answer} {self.tail()}")
            self.tokens[tenant] = first(answer.reply, 2).decode()

    def api(self, tenant=ATTACKER, timeout=20):
        return calls.Api(self.address, self.metadata(tenant), timeout)

    def plant(self):
        """Plants the neighbour's secrets: a buffer, a job's input and output, an upload, names and labels."""
        api = self.api(NEIGHBOUR)
        data = self.secret.encode().ljust(64, b".")
        self.buffer_id = first(first(api.call("CreateBuffer", encode(f2=len(data))).reply, 1), 1).decode()
        api.call("WriteBuffer", encode(f1=encode(f2=self.buffer_id), f2=data))
        answer = api.submit(calls.ADD, {"in": calls.tensor(calls.I32, data)}, name=self.secret, labels=[("secret", self.secret)])
        if not answer.ok or not self.buffer_id:
            raise RuntimeError(f"the neighbour's job: {answer} {self.tail()}")
        self.job_id = api.job_id(answer)
        self.module_sha256 = api.put_module(calls.KERNELS)[0]
        # The module has a section of its own, which no other tenant's module has.
        own_module = calls.KERNELS + b"\0" + bytes((len(self.secret) + 2,)) + b"\1x" + self.secret.encode()
        self.own_module_sha256, self.own_module_bytes = api.put_module(own_module)[0], len(own_module)
        graph = json.dumps({**calls.ADD, "name": self.secret})
        self.graph_sha256, self.graph_bytes = api.put_graph(graph)[0], len(graph)
        self.handle, _ = api.handle(calls.ADD)
        self.handle = self.handle.decode()
        end = time.monotonic() + 20
        while api.job(self.job_id).get(3, [0])[0] < 4 and time.monotonic() < end:
            time.sleep(0.05)
        api.close()

    def executors(self):
        mark = str(self.bin / self.setting.executor).encode()
        return {pid: arguments for pid, (_, arguments) in children(self.process.pid).items()
                if arguments[0] == mark and not any(a.startswith(b"--") for a in arguments[1:])}

    def executor_of(self, tenant):
        """Returns the tenant's executor, started if there is none. Executors do not show their tenant, so this one is asked to name a thread."""
        api = self.apis.setdefault(tenant, self.api(tenant))
        tag = f"lab-{tenant}"[:15]
        for _ in range(20):
            calls.strike(api, "name", {"tag": tag})
            for pid in self.executors():
                if tag in thread_names(pid):
                    return pid
        return None

    def compiler_of(self, pid):
        return next((child for child, (_, arguments) in children(pid).items() if arguments[0].endswith(b"hpvm-compiler")), None)

    def is_alive(self):
        return self.process.poll() is None

    def resident_bytes(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def tail(self, size=2000):
        return self.log.read_text(errors="replace")[-size:]

    def stop(self):
        """Returns the daemon's exit code, and the processes that it left."""
        self.neighbour.stop()
        for api in self.apis.values():
            api.close()
        family = list(children(self.process.pid))
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        left = []
        for _ in range(40):
            left = [pid for pid in family if os.path.exists(f"/proc/{pid}/exe") and str(self.bin) in read_link(f"/proc/{pid}/exe")]
            if not left:
                break
            time.sleep(0.05)
        return code, left


def read_link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""
