#!/bin/sh
# Checks the Vagrantfile with vagrant itself, without a provider; the scripts that it names must be there.
set -eu

cd "$(dirname "$0")"
if ! command -v vagrant >/dev/null 2>&1; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "vagrant is missing; install it with: sudo apt-get install vagrant" >&2
        exit 1
    fi
    echo "installing the Debian package vagrant" >&2
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends vagrant; } >/dev/null
fi
# vagrant asks its makers for news, and writes to the home, unless told otherwise.
state=$(mktemp -d)
# shellcheck disable=SC2154  # the trap assigns it
trap 'code=$?; trap - EXIT; rm -rf "$state"; exit "$code"' EXIT
VAGRANT_HOME=$state VAGRANT_CHECKPOINT_DISABLE=1 VAGRANT_NO_COLOR=1 timeout 120 vagrant validate --ignore-provider
