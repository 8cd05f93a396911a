# SPDX-License-Identifier: MIT
# Makefile - Meson is the build; these are the words for it.
#
#   make            builds build/weir and the libraries; it installs nothing
#   make deps       installs the packages that building needs (Debian)
#   make demo       two roots, three services and load, in half a minute
#   make demo-adaptive  a PostgreSQL, a service and load, without a limit and
#                       with one that finds itself, in a minute
#   make check      unit and model tests, a live test of each port and binding,
#                   the repository's rules: 5 minutes at most on two cores
#   make check-all  everything, under every sanitizer, in long forms: hours
#   make lab        every scenario, into lab/RESULTS.md; takes minutes
#   make bench      speeds, beside bare anchors and beside peers
#   make race       eight processes at one store: what get-then-set lets through
#   make format     clang-format over the sources
#   make install    DESTDIR is honoured
#   make clean
#
# What continuous integration runs is .ci/run: between check and check-all.

NINJA = ninja -C build
DEPS = tools/install-deps.sh

all:
	$(DEPS) --missing build
	$(MAKE) products

# Of what needs more than the products, each step installs what it needs.
products: build/build.ninja
	$(NINJA) products

build/build.ninja:
	meson setup build

deps:
	$(DEPS) build

demo:
	$(DEPS) demo
	$(MAKE) products
	$(NINJA) example-programs
	examples/demo.sh build

demo-adaptive:
	$(DEPS) demo
	$(MAKE) products
	$(NINJA) example-programs
	examples/demo-adaptive.sh build

# A warning is an error here, as in .ci/run; `make` alone lets it pass.
check:
	$(DEPS) check
	$(MAKE) build/build.ninja
	meson configure build -Dwerror=true
	tools/run-tests build --suite unit --suite model --suite repository \
	    --suite quick

check-all:
	tools/check-all

lab:
	$(DEPS) lab
	$(MAKE) products
	lab/results build
	lab/growth build

bench:
	$(DEPS) bench
	$(MAKE) products
	bench/run build

race:
	$(DEPS) check
	$(MAKE) build/build.ninja
	$(NINJA) bench/weir-bench-race
	build/bench/weir-bench-race --json build/race.json

format:
	$(DEPS) format
	find src include lab test bench examples bindings \
	    \( -name '*.[ch]' -o -name '*.[ch]pp' \) \
	    -exec clang-format -i {} +

install: all
	meson install -C build --no-rebuild

clean:
	rm -rf build build-asan build-tsan build-fuzz

.PHONY: all products deps demo demo-adaptive check check-all lab bench race \
    format install clean
