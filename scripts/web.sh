#!/bin/sh
# The page of `kproxy explore`: builds web/ into kproxy/explorer/static, whose files are in the repository and in the wheel,
# so that users need no Node. The same sources give the same bytes.
#
# usage: web.sh [tools]      tools: only what building and testing the page need: Node as root, libraries by the lock file
set -eu

cd "$(dirname "$0")/.."
missing=""
for name in node npm; do
    command -v "$name" >/dev/null 2>&1 || missing="$missing $name"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" -ne 0 ]; then
        echo "the page of kproxy explore is built with Node.js; install it with: sudo apt-get install nodejs npm" >&2
        exit 1
    fi
    echo "installing Debian packages: nodejs npm" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null
fi

# Node has authorities of its own; those of the machine count as well, as for every other client.
machine=/etc/ssl/certs/ca-certificates.crt
[ -n "${NODE_EXTRA_CA_CERTS:-}" ] || [ ! -f "$machine" ] || export NODE_EXTRA_CA_CERTS="$machine"

# One at a time, since tests ask for it side by side.
exec 9<web/package-lock.json
flock 9
if ! cmp -s web/package-lock.json web/node_modules/.installed; then
    (cd web && npm ci --ignore-scripts --loglevel=error >/dev/null)
    cp web/package-lock.json web/node_modules/.installed
fi
[ "${1:-}" = tools ] || node web/build.mjs
