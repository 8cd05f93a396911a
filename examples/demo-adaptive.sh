#!/bin/sh
# SPDX-License-Identifier: MIT
# demo-adaptive.sh BUILD [--short] - a database of unknown capacity, with a
# limit and without: see demo_adaptive.py. Its exit status is 0 if every claim
# held.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/demo_adaptive.py" "$@"
