#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The lab must find something when a promise is broken on purpose, and nothing otherwise.

    mutants_test.py BUILD_FOLDER
"""

import pathlib
import subprocess
import sys

LAB = pathlib.Path(__file__).resolve().parent / "lab.py"
# The mutant, and attacks that suffice to notice it.
CASES = (("", ("--only", "inherited files")), ("no_sandbox", ("--only", "read the job store")), ("leak", ("--only", "inherited files")),
         ("no_owner_check", ("--groups", "api", "--only", "ids of a neighbour")), ("neighbour_killed", ("--only", "inherited files")),
         ("daemon_killed", ("--only", "inherited files")), ("log_forged", ("--groups", "api", "--only", "text for the log")))


def main():
    wrong = []
    for mutant, arguments in CASES:
        command = [sys.executable, LAB, sys.argv[1], "--settings", "top", "--mutant", mutant, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        found = " findings" in done.stdout and "FAILED" in done.stdout and done.returncode == 1
        passed = done.returncode == 0 and " 0 findings" in done.stdout
        if not (found if mutant else passed):
            wrong.append(f"{mutant or 'no mutant'}: {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        print(f"{mutant or 'no mutant'}: {'caught' if found else 'nothing found'}", flush=True)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
