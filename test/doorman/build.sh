#!/bin/sh
# SPDX-License-Identifier: MIT
# build.sh FOLDER [python] - generates and builds the clients of this folder in
# FOLDER; with 'python' Python's alone, which needs no compiler.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
proto=$here/../../proto
mkdir -p "$1"
out=$(cd "$1" && pwd)

protoc -I "$proto" --python_out="$out" --grpc_python_out="$out" \
    --plugin=protoc-gen-grpc_python="$(command -v grpc_python_plugin)" \
    doorman.proto
cp "$here/client.py" "$out"
[ "${2:-}" != python ] || exit 0

# Debian's Go packages are in a GOPATH; a second one, made here, has ours.
mkdir -p "$out/go/src/doormanpb" "$out/go/src/client"
protoc -I "$proto" doorman.proto --go_out="\
plugins=grpc,paths=source_relative,Mdoorman.proto=doormanpb:\
$out/go/src/doormanpb"
cp "$here/client.go" "$out/go/src/client/"
# Go's own cache, if it has a folder, saves the next build folder a minute of
# compiling gRPC.
[ -n "${GOCACHE:-}${XDG_CACHE_HOME:-}${HOME:-}" ] ||
    export GOCACHE="$out/go/cache"
GO111MODULE=off GOTOOLCHAIN=local GOFLAGS= GOPATH=$out/go:/usr/share/gocode \
    CGO_ENABLED=0 go build -o "$out/client-go" client
