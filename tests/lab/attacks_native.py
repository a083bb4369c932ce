# SPDX-License-Identifier: Apache-2.0
"""Native code in the runner, after the lock-down. (threat, from which level it must fail, name, probe, arguments)"""

import ctypes
import signal

from attack import native

# Files: the filter forbids open where there is no driver.
for path, name in (("/etc/shadow", "password hashes"), ("/etc/passwd", "a file for everybody"), ("{store}", "the job store"),
                   ("{key}", "the key of the caches"), ("{identity}", "tokens and tenants"),
                   ("{n_blob}", "a neighbour's stored bytes"), ("{n_cache}", "a neighbour's compiled kernel"), ("{log}", "the daemon's log"),
                   ("/proc/self/environ", "its environment"), ("/proc/self/maps", "its memory's map"),
                   ("/proc/{n_pid}/environ", "a neighbour's environment"), ("/proc/{n_pid}/maps", "a neighbour's map"),
                   ("/proc/{d_pid}/maps", "the daemon's map"), ("/proc/{d_pid}/cmdline", "the daemon's command line"),
                   ("/proc/kallsyms", "kernel symbols"), ("/proc/net/unix", "open sockets"), ("/dev/kmsg", "kernel messages"),
                   ("/dev/mem", "physical memory"), ("/sys/kernel/uevent_seqnum", "sysfs")):
    native("T18", 1, f"read {name}", "read", core="neighbour" in name or "key" in name or "store" in name, path=path)
native("T1", 1, "read a neighbour's memory by file", "read", core=True, path="/proc/{n_pid}/mem", offset="{n_address}")
native("T1", 1, "read the daemon's memory by file", "read", path="/proc/{d_pid}/mem", offset="{d_address}")
native("T1", 1, "write own memory by file", "own_mem", core=True)
for whose in ("n_pid", "d_pid", "compiler", "n_compiler"):
    native("T18", 1, f"descriptors of {whose}", "fds_of", pid="{%s}" % whose)
native("T18", 1, "list processes", "list", core=True, path="/proc")
native("T18", 1, "list the state folder", "list", path="{state}")
native("T18", 1, "list the neighbour's cache", "list", path="{n_cache_folder}")
native("T18", 1, "write the core pattern", "write", path="/proc/sys/kernel/core_pattern")
native("T18", 1, "write the job store", "write", path="{store}")
native("T34", 1, "write the audit", "write", path="{audit}")
native("T9", 1, "write a neighbour's cache", "create", path="{n_cache_folder}/planted")
native("T18", 1, "write outside of scratch", "create", core=True, path="/tmp/hpvm-lab-planted")
native("T18", 1, "write where everybody may", "create", path="/dev/shm/hpvm-lab-planted")
native("T18", 1, "remove the daemon's socket", "remove", path="{victim}")
native("T18", 1, "rename", "rename", path="{victim}")
native("T18", 1, "make a folder", "mkdir", path="{folder}/planted")
native("T18", 1, "make a node", "mknod", path="{folder}/planted-node")
native("T18", 1, "change a mode", "chmod", path="{victim}")
native("T18", 1, "link", "link", path="{victim}")
native("T18", 1, "watch files", "inotify", path="/etc")
native("T18", 1, "stat", "stat", path="{store}")
native("T18", 0, "inherited files", "inherited", core=True)
native("T18", 1, "a way out by descriptors", "openat", core=True)
for device in ("/dev/nvidiactl", "/dev/dri/renderD128", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vda"):
    native("T15", 1, f"device {device}", "write", path=device)

# Processes.
for whose in ("n_pid", "d_pid", "compiler", "n_compiler", "n_client"):
    for probe in ("ptrace", "kill", "tgkill", "sigqueue", "pidfd_open", "pidfd_getfd"):
        native("T18", 1, f"{probe} {whose}", probe, pid="{%s}" % whose, brief=whose in ("n_pid", "d_pid"),
               core=whose == "n_pid" or probe == "kill")
native("T1", 1, "process_vm_readv of the neighbour", "read_memory", core=True, pid="{n_pid}", address="{n_address_hex}")
native("T1", 1, "process_vm_readv of the daemon", "read_memory", pid="{d_pid}", address="{d_address_hex}")
native("T1", 1, "process_vm_writev of the neighbour", "write_memory", pid="{n_pid}", address="{n_address_hex}")
native("T18", 1, "signal everybody", "kill_all")
for probe in ("prlimit_of", "affinity_of", "priority_of"):
    native("T18", 1, f"{probe} the neighbour", probe, pid="{n_pid}")
for probe in ("clone_process", "fork", "clone3", "execve", "execveat"):
    native("T19", 1, probe, probe, core=True)
for probe in ("setresuid", "setresgid"):
    native("T18", 1, f"{probe} of the neighbour", probe, uid="{n_uid}")
    native("T18", 1, f"{probe} of root", probe, uid=0)
native("T18", 0, "all capabilities", "capset", core=True)
for probe in ("dumpable", "pdeathsig"):
    native("T20", 1, probe, probe)

# Sockets.
native("T18", 1, "the daemon's socket", "connect_unix", core=True, path="{socket}")
native("T28", 1, "the daemon's ticket socket", "connect_unix", core=True, path="{socket}.auth")
native("T18", 1, "an abstract socket", "connect_unix", core=True, path="@{abstract}")
native("T18", 1, "a service on loopback", "connect_tcp", core=True, port="{port}")
native("T18", 1, "a datagram", "send_udp", port="{port}")
native("T18", 1, "listen", "listen_tcp")
native("T18", 1, "a socket pair", "socketpair")
for family, name in ((2, "IPv4"), (10, "IPv6"), (16, "netlink"), (17, "packet"), (38, "the kernel's crypto"), (40, "vsock"), (29, "CAN"), (31, "Bluetooth"), (44, "XDP")):
    for kind in (1, 2, 3):
        native("T18", 1, f"socket of {name}, {kind}", "socket", family=family, kind=kind, brief=kind == 3)

# The kernel's rarely used calls. Their arguments have no effect.
CALLS = {"bpf": 321, "perf_event_open": 298, "io_uring_setup": 425, "io_uring_enter": 426, "userfaultfd": 323, "keyctl": 250,
         "add_key": 248, "request_key": 249, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "open_tree": 428,
         "fsopen": 430, "fsmount": 432, "move_mount": 429, "init_module": 175, "finit_module": 313, "kexec_load": 246, "iopl": 172,
         "ioperm": 173, "modify_ldt": 154, "swapon": 167, "quotactl": 179, "settimeofday": 164, "clock_settime": 227, "sethostname": 170,
         "acct": 163, "personality": 135, "syslog": 103, "kcmp": 312, "setns": 308, "open_by_handle_at": 304, "name_to_handle_at": 303,
         "fanotify_init": 300, "memfd_secret": 447, "process_madvise": 440, "landlock_create_ruleset": 444, "seccomp": 317,
         "move_pages": 279, "migrate_pages": 256, "mbind": 237, "vmsplice": 278, "splice": 275, "tee": 276, "sendfile": 40,
         "mq_open": 240, "ioprio_set": 251, "timer_create": 222, "lookup_dcookie": 212, "remap_file_pages": 216, "vhangup": 153,
         "ptrace": 101, "process_mrelease": 448, "cachestat": 451, "futex_waitv": 449, "pidfd_send_signal": 424}
for name, number in CALLS.items():
    native("T18", 1, name, "call", number=number, a=-1, b=0, c=0, d=0, e=0, f=0)
NAMESPACES = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000}
for name, flag in NAMESPACES.items():
    native("T18", 1, f"unshare {name}", "unshare", flags=flag, brief=name in ("user", "net"))
    native("T18", 1, f"clone into {name}", "clone_namespace", flags=flag, brief=name in ("user", "net"))
for probe in ("mprotect_wx", "mmap_wx", "mmap_twice", "pkey_mprotect"):
    native("T1", 1, probe, probe, core=True)
for descriptor, request in ((0, 0x5412), (2, 0x5412), (3, 0x541b), (3, 0x8912), (1, 0xc020462a)):
    native("T15", 1, f"ioctl {request:#x} on {descriptor}", "ioctl", fd=descriptor, request=request)
for probe in ("shmget", "semget", "msgget", "real_time", "raise_priority", "mlockall", "int80", "x32"):
    native("T18", 1, probe, probe)
native("T19", 0, "raise its limits", "raise_limits", core=True)

# Resource exhaustion. Without a user id or a control group of its own, only the filter and the limits protect.
native("T19", 0, "descriptors without end", "descriptors", core=True, count=5000)
native("T19", 3, "threads without end", "threads", core=True, count=3000, brief=False)
native("T21", 0, "resize shared memory", "resize_shared", core=True)
native("T32", 5, "lines in the daemon's log", "log", text="I99991231 23:59:59 lab-injected", bytes=20_000_000)
