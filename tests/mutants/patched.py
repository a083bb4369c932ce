#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the tree to a folder, with every seeded bug of daemon and scheduler (system/*.patch) behind its switch.

    tests/mutants/patched.py FOLDER

There `cmake --preset mutants` builds programs in which the environment variable HPVMD_MUTANT switches a bug on. A folder
that was made before is brought up to date.
"""
import pathlib
import sys

import patches
import seeded


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1]).resolve()
    seeded.copy_tree(folder, patches.apply_all(patches.read_all(seeded.HERE / "system"), seeded.ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
