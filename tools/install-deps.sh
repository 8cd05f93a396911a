#!/bin/sh
# SPDX-License-Identifier: MIT
# install-deps.sh [--missing] [STEP…] - installs the missing Debian packages of
# these steps, or of all steps if none is named. With --missing it installs
# nothing: it names the missing packages, and its exit status is 1 if there are
# any. Before it uses sudo at a terminal, it asks.
set -eu

build="gcc libc6-dev make meson ninja-build pkg-config python3
    libevent-dev libc-ares-dev libnghttp2-dev libssl-dev libsqlite3-dev
    libpq-dev libjansson-dev libyaml-dev libxxhash-dev libhiredis-dev
    libmemcached-dev zlib1g-dev"
check="libcmocka-dev protobuf-c-compiler libprotobuf-c-dev
    g++ binutils clang libclang-rt-dev llvm git curl openssl
    gnuplot-nox postgresql redis-server memcached etcd-server iproute2
    dnsmasq-base libfaketime protobuf-compiler protobuf-compiler-grpc
    python3-grpcio python3-protobuf python3-redis python3-jsonschema
    python3-yaml
    golang-go golang-google-grpc-dev golang-goprotobuf-dev prometheus
    chromium npm nginx nginx-dev libnginx-mod-http-lua wrk
    default-jdk-headless stress-ng node-llhttp"
demo="wrk curl gzip postgresql"
bench="wrk nginx nginx-dev curl nghttp2-client"
lab="gnuplot-nox"
format="clang-format"

only_name=
if [ "${1:-}" = --missing ]; then
    only_name=yes
    shift
fi

# The packages of the named steps, or of all.
wanted=
for step in "${@:-all}"; do
    case $step in
    build) wanted="$wanted $build" ;;
    check) wanted="$wanted $build $check" ;;
    demo) wanted="$wanted $build $demo" ;;
    bench) wanted="$wanted $build $bench" ;;
    lab) wanted="$wanted $build $lab" ;;
    format) wanted="$wanted $format" ;;
    all) wanted="$build $check $demo $bench $lab" ;;
    *)
        echo "install-deps: no step '$step':" \
            "build, check, demo, bench, lab, format" >&2
        exit 2
        ;;
    esac
done

if ! command -v dpkg-query >/dev/null; then
    echo "install-deps: not a Debian system; install packages like these:" \
        $wanted >&2
    exit 0
fi

# A clang of any version brings its own runtime package.
case " $wanted " in
*" libclang-rt-dev "*)
    major=$(clang --version 2>/dev/null |
        sed -n 's/.*version \([0-9]*\).*/\1/p')
    runtime="libclang-rt${major:+-$major}-dev"
    wanted=$(echo $wanted | sed "s/libclang-rt-dev/$runtime/")
    ;;
esac

# npm downloads uPlot for the page. A Node.js that isn't Debian's includes npm,
# and Debian's npm then can't be installed.
if command -v npm >/dev/null; then
    wanted=$(echo " $wanted " | sed 's/ npm / /')
fi

here=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 2>/dev/null |
    sed -n 's/ installed$//p')
# A library for multiarch may be provided under another name.
here="$here $(dpkg-query -W -f '${Provides}, ' 2>/dev/null | tr ',' '\n' |
    sed 's/(.*//' | tr -d ' ' | sort -u)"
missing=
for package in $wanted; do
    echo $here | tr ' ' '\n' | grep -qxF "$package" ||
        missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ -n "$only_name" ]; then
    echo "These packages are missing:$missing" >&2
    echo "\`make deps\` installs them." >&2
    exit 1
fi

sudo=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "install-deps: as root, please:" \
            "apt-get install --no-install-recommends$missing" >&2
        exit 1
    fi
    sudo=sudo
    if [ -t 0 ] && [ -t 1 ]; then
        echo "These packages are missing:$missing"
        printf 'Install them by sudo apt-get? [Y/n] '
        read -r answer
        case $answer in
        '' | [Yy]*) ;;
        *)
            echo "Nothing was installed." >&2
            exit 1
            ;;
        esac
    fi
fi
echo "installing:$missing"
# RUNLEVEL=1: a package's daemon (nginx) is not started.
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends $missing
