#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds panics.wasm, which is committed, from panics.rs with Debian's rustc, which includes std.
set -e
cd "$(dirname "$0")"
"${RUSTC:-/usr/bin/rustc}" --target wasm32-unknown-unknown --crate-type cdylib -O -C strip=debuginfo -o panics.wasm panics.rs
chmod 644 panics.wasm
