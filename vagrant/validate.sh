#!/bin/bash
# Checks the Vagrantfile with vagrant itself, without a provider; the scripts that it names must be there.
set -euo pipefail

cd "$(dirname "$0")"
# shellcheck source=scripts/common.sh
. ../scripts/common.sh
state=""
trap 'code=$?; trap - EXIT; end_child; rm -rf "$state"; exit $code' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if ! command -v vagrant >/dev/null 2>&1; then
    [ "$(id -u)" -eq 0 ] || fail 1 "vagrant is missing; install it with: sudo apt-get install vagrant"
    install_packages vagrant
fi
# vagrant asks its makers for news, and writes to the home and to this folder, unless told otherwise.
state=$(mktemp -d)
VAGRANT_HOME=$state/home VAGRANT_DOTFILE_PATH=$state/dot VAGRANT_CHECKPOINT_DISABLE=1 VAGRANT_NO_COLOR=1 \
    timeout 120 vagrant validate --ignore-provider
