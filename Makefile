# SPDX-License-Identifier: MIT
# Makefile - Meson is the build; these are the words for it.
#
#   make            builds build/weir and the libraries
#   make demo       a root, three services and load, in half a minute
#   make check      every test that is quick, and the house's rules
#   make check-ci   the same under sanitizers, and the fuzzers, briefly
#   make check-all  everything, for the night
#   make lab        every scenario, into lab/RESULTS.md; takes minutes
#   make bench      speeds, beside bare anchors and beside peers
#   make format     clang-format over the sources
#   make install    DESTDIR is honoured
#   make clean

NINJA = ninja -C build
FUZZ_SECONDS = 30

all: build-deps
	test -f build/build.ninja || meson setup build
	$(NINJA)

build-deps:
	tools/install-deps.sh build

demo: all
	tools/install-deps.sh demo
	examples/demo.sh build

check: check-deps all
	meson test -C build --no-suite long --print-errorlogs

check-ci: check-deps
	tools/check-ci $(FUZZ_SECONDS)

check-all: check-deps all
	meson test -C build --print-errorlogs
	tools/check-ci 600

lab: all
	tools/install-deps.sh lab
	lab/results build
	lab/growth build

bench: all
	tools/install-deps.sh bench
	bench/run build

check-deps:
	tools/install-deps.sh check

format:
	tools/install-deps.sh format
	find src include lab test bench examples -name '*.[ch]' \
	    -exec clang-format -i {} +

install: all
	meson install -C build --no-rebuild

clean:
	rm -rf build build-asan build-tsan build-fuzz

.PHONY: all demo check check-ci check-all lab bench format install clean \
    build-deps check-deps
