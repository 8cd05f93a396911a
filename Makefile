# SPDX-License-Identifier: MIT
# Makefile - Meson is the build; these are the words for it.
#
#   make            builds build/weir and the libraries
#   make demo       two roots, three services and load, in half a minute
#   make demo-adaptive  a PostgreSQL, a service and load, without a limit and
#                       with one that finds itself, in a minute
#   make check      every test that is quick, and the house's rules
#   make check-ci   the same under sanitizers, and the fuzzers, briefly
#   make check-all  everything, for the night
#   make lab        every scenario, into lab/RESULTS.md; takes minutes
#   make bench      speeds, beside bare anchors and beside peers
#   make race       eight processes at one store: what get-then-set lets through
#   make format     clang-format over the sources
#   make install    DESTDIR is honoured
#   make clean

NINJA = ninja -C build
FUZZ_SECONDS = 20

# Tests of real processes wait more than they compute.
export MESON_TESTTHREADS ?= $(shell echo $$(($$(nproc) * 3 / 2)))

all: build-deps
	test -f build/build.ninja || meson setup build
	$(NINJA)

build-deps:
	tools/install-deps.sh build

demo: all
	tools/install-deps.sh demo
	examples/demo.sh build

demo-adaptive: all
	tools/install-deps.sh demo
	examples/demo-adaptive.sh build

check: check-deps all
	tools/test-tree build --no-suite long

check-ci: check-deps
	tools/check-ci $(FUZZ_SECONDS)

check-all: check-deps all
	tools/test-tree build
	tools/check-ci 600

lab: all
	tools/install-deps.sh lab
	lab/results build
	lab/growth build

bench: all
	tools/install-deps.sh bench
	bench/run build

race: all
	tools/install-deps.sh check
	$(NINJA) bench/weir-bench-race
	build/bench/weir-bench-race --json build/race.json

check-deps:
	tools/install-deps.sh check

format:
	tools/install-deps.sh format
	find src include lab test bench examples bindings \
	    \( -name '*.[ch]' -o -name '*.[ch]pp' \) \
	    -exec clang-format -i {} +

install: all
	meson install -C build --no-rebuild

clean:
	rm -rf build build-asan build-tsan build-fuzz

.PHONY: all demo demo-adaptive check check-ci check-all lab bench race format install clean \
    build-deps check-deps
