#!/usr/bin/env bash
# Shows a cluster on one machine: starts PostgreSQL and three daemons, submits jobs, kills a daemon while it runs some of
# them, and shows that every job is done. Needs a build (README.md) and PostgreSQL's programs (postgresql-15).
#   deploy/cluster-demo.sh [--jobs N] [--keep]     --keep leaves the folder with the logs
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=30 keep=
while [ $# -gt 0 ]; do
  case "$1" in
    --jobs) jobs=${2:?--jobs takes a number}; shift 2 ;;
    --keep) keep=1; shift ;;
    *) echo "usage: deploy/cluster-demo.sh [--jobs N] [--keep]" >&2; exit 2 ;;
  esac
done

bin=$PWD/build/release/bin
[ -x "$bin/hpvmd" ] || { echo "build/release/bin/hpvmd is missing; build first (README.md)." >&2; exit 1; }
postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -n "$postgres" ] || { echo "PostgreSQL is missing; install postgresql-15, or run deploy/setup.sh --tests." >&2; exit 1; }

step() { printf '\n== %s\n' "$1"; }
work=$(mktemp -d "${TMPDIR:-/tmp}/hpvmd-cluster-XXXXXX")
chmod 755 "$work"
declare -A daemons=()
database=
finish() {
  for pid in "${daemons[@]}" $database; do
    kill "$pid" 2>/dev/null || true
  done
  wait 2>/dev/null || true
  if [ -n "$keep" ]; then echo "The logs are in $work."; else rm -rf "$work"; fi
}
trap finish EXIT

step "Starting PostgreSQL"
mkdir "$work/postgres" "$work/blobs"
as_postgres=()
if [ "$(id -u)" = 0 ]; then # PostgreSQL refuses root.
  chown postgres "$work/postgres"
  as_postgres=(setpriv --reuid postgres --regid postgres --clear-groups)
fi
(cd / && "${as_postgres[@]}" "$postgres/initdb" --pgdata "$work/postgres/data" --username hpvmd --auth trust \
  --encoding UTF8 --no-locale >"$work/initdb.log" 2>&1) || { cat "$work/initdb.log"; exit 1; }
(cd / && exec "${as_postgres[@]}" "$postgres/postgres" -D "$work/postgres/data" -c listen_addresses= \
  -c unix_socket_directories="$work/postgres" >"$work/postgres.log" 2>&1) &
database=$!
for _ in $(seq 100); do
  "$postgres/pg_isready" -q -h "$work/postgres" && break
  sleep 0.1
done

start() { # NAME
  mkdir -p "$work/$1"
  cat >"$work/$1/hpvmd.toml" <<TOML
[server]
listen = "unix:$work/$1/hpvmd.sock"
state_dir = "$work/$1/state"
[cluster]
database = "postgresql://hpvmd@/postgres?host=$work/postgres"
blob_dir = "$work/blobs"
host = "$1"
claims_max = 4
TOML
  "$bin/hpvmd" --config "$work/$1/hpvmd.toml" --devices cpu >"$work/$1/hpvmd.log" 2>&1 &
  daemons[$1]=$!
}
on() { # NAME COMMAND...
  local host=$1
  shift
  "$bin/hpvmctl" --server "unix:$work/$host/hpvmd.sock" --connect-timeout 30 "$@"
}

step "Starting three daemons: one, two and three"
for host in one two three; do
  start $host
done
for host in one two three; do
  on $host devices >/dev/null || { cat "$work/$host/hpvmd.log"; exit 1; }
done
on one cluster hosts

step "Submitting $jobs jobs to the daemon one"
data=$work/data
mkdir "$data"
/usr/bin/python3 examples/matmul/check.py make "$data/A.npy" "$data/B.npy" >/dev/null
for ((i = 0; i < jobs; i++)); do
  printf '{"label": {"batch": "demo"}}\n'
done >"$work/jobs.jsonl"
on one submit examples/matmul/short.json --each "$work/jobs.jsonl" --repeat 400 --detach \
  --input A="$data/A.npy" --input B="$data/B.npy" >"$work/ids"
sleep 2
on three list --label batch=demo | head -n 12

step "Killing the daemon two with SIGKILL, while it runs jobs"
on one list --label batch=demo --state running -o custom-columns=ID:id,HOST:host
kill -KILL "${daemons[two]}"
wait "${daemons[two]}" 2>/dev/null || true
unset 'daemons[two]'
sleep 1
on three cluster status

step "Waiting for all jobs, at the daemon three"
began=$(date +%s)
# shellcheck disable=SC2046
on three wait $(cat "$work/ids") >"$work/wait.log" 2>&1 || { tail -n 20 "$work/wait.log"; exit 1; }
echo "All have ended, $(($(date +%s) - began)) s later."

step "The jobs"
on three list --label batch=demo --limit 1000 -o custom-columns=STATE:state,HOST:host,ATTEMPTS:attempt | sort | uniq -c
on one cluster hosts
succeeded=$(on one list --label batch=demo --state succeeded --limit 1000 -o name | wc -l)
[ "$succeeded" = "$jobs" ] || { echo "Only $succeeded of $jobs jobs succeeded." >&2; exit 1; }
echo
echo "Each of the $jobs jobs succeeded, and none of them was lost with the daemon two."
