#!/bin/sh
# Sets up what `make test` needs: a virtual environment with kproxy, all its extras and its tools, and the
# Debian packages that are missing. Only root installs Debian packages; others are told in one line which to install.
#
# usage: setup.sh VENV [demo]      (PYTHON names the interpreter, python3 by default)
#   demo   only what `make demo` needs: kproxy without extras, ip and iptables
set -eu

venv=${1:-}
what=${2:-all}
python=${PYTHON:-python3}
[ "$#" -le 2 ] && [ -n "$venv" ] && { [ "$what" = all ] || [ "$what" = demo ]; } || {
    echo "usage: setup.sh VENV [demo]" >&2
    exit 2
}

# Before anything is installed: Debian's own interpreter is installed if it is missing, another one is not.
check_python() {
    if ! command -v "$python" >/dev/null 2>&1; then
        [ "$python" = python3 ] || { echo "PYTHON names the interpreter '$python', and there is no such command" >&2; exit 2; }
        return 0
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "kproxy needs Python 3.11 or later, and $python is $("$python" --version 2>&1); set PYTHON to a newer one" >&2
        exit 1
    }
}
check_python
[ "$what" = all ] || echo "demo: once a virtual environment with kproxy, half a minute; then the demo, 5 seconds" >&2

missing=""
need() { # need COMMAND PACKAGE
    PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need "$python" python3
need ip iproute2
need iptables-nft-restore iptables
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
if [ "$what" = all ]; then
    need iptables-legacy-restore iptables
    need ipset ipset
    need nft nftables
    need nfacct nfacct
    need conntrack conntrack
    need kubectl kubernetes-client
    need gcc gcc
    need curl curl
    need chromium chromium
    need chromedriver chromium-driver
    # python-iptables compiles a small extension.
    "$python" -c 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' 2>/dev/null ||
        missing="$missing python3-dev libc6-dev"
fi
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')

if [ -n "${missing# }" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "kproxy needs Debian packages that are missing; install them with: sudo apt-get install ${missing% }" >&2
        exit 1
    fi
    echo "installing Debian packages: $missing" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of names
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

check_python

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
package='.[all,dev]'
[ "$what" = all ] || package=.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$package"
