#!/bin/sh
# SPDX-License-Identifier: MIT
# demo.sh BUILD - Weir's features in half a minute on a terminal: see demo.py.
# Its exit status is 0 if every claim held.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/demo.py" "${1:-build}"
