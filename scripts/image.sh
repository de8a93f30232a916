#!/bin/bash
# Builds the image of deploy/Dockerfile where no registry is at hand: a Debian base made with mmdebstrap from this
# machine's own apt sources, then buildah; apt and pip reach their mirrors as this machine's do, and nothing of that
# configuration is in the image. The image is then in root's own storage (podman images, buildah images).
#
# usage: image.sh [--test PYTHON]      the latter runs the image too: scripts/image-test.py, with that interpreter
#   IMAGE            the image's name, localhost/kproxy:VERSION by default
#   IMAGE_ARCHIVE    a file: the image is written there too, for docker load, podman load or ctr images import
#   KPROXY_CACHE     where the base is kept between runs; ~/.cache/kproxy by default
# exit: 0 built, its size on stdout; 1 something failed; 2 bad usage
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/.." && pwd)
export HOME="${HOME:-/root}" PATH="$PATH:/usr/sbin:/sbin"
cache=${KPROXY_CACHE:-$HOME/.cache/kproxy}/image
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$tree/kproxy/__init__.py")
image=${IMAGE:-localhost/kproxy:$version}
program=image
# shellcheck source=scripts/common.sh
. "$here/common.sh"
suite=bookworm

python=""
case ${1:-} in
    "") ;;
    --test)
        python=${2:-}
        [ -x "$python" ] || fail 2 "--test needs the interpreter of an environment with kproxy"
        ;;
    -h | --help)
        sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"
        exit 0
        ;;
    *) fail 2 "no such argument: $1; --help says what it reads from the environment" ;;
esac
[ "$(id -u)" -eq 0 ] || fail 1 "only root can make a root directory; run: sudo make image"
command -v apt-get >/dev/null || fail 1 "needs a machine with apt, whose sources it uses"
missing=""
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need mmdebstrap mmdebstrap
need gpg gpg
need buildah buildah
if [ -n "$python" ]; then
    need podman podman
    need crun crun
    need kubectl kubernetes-client
    need curl curl
    need iptables-nft-save iptables
    need nft nftables
fi
# shellcheck disable=SC2086  # a list of names
[ -z "$missing" ] || install_packages $missing

mkdir -p "$cache" || fail 1 "cannot make $cache; name another folder in KPROXY_CACHE"
chmod 0700 "$cache"
exec 9>"$cache/lock"
scratch=$(mktemp -d "$cache/run.XXXXXX")
finish() {
    code=$?
    trap - EXIT
    end_child
    rm -rf --one-file-system "$scratch"
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
flock --nonblock 9 || attend "waiting for another run" "" flock --timeout 3600 9 || fail 1 "another run still holds $cache/lock"

logged() { # logged WHAT LOG COMMAND...: run it; the end of its log if it fails
    local status=0
    attend "$@" || status=$?
    [ "$status" -eq 0 ] || tail -n 25 "$2" >&2
    [ "$status" -eq 0 ] || fail 1 "$1 failed (exit $status); the whole log is $2"
}

sources=$(need_sources "$suite") || fail 1 "apt of this machine has no source of Debian"

make_base() { # $base: an archive of a minimal Debian, without manuals and without the names of any source
    # As Debian's slim images: licences stay, and python3's own hooks want the folders of manuals to be there.
    # /usr is merged from the beginning: the package that merges it later brings the whole of Perl.
    local options=(--variant=minbase --mode=root --format=tar --include=usr-is-merged
        --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr
        "--dpkgopt=path-exclude=/usr/share/man/*" "--dpkgopt=path-exclude=/usr/share/locale/*"
        "--dpkgopt=path-exclude=/usr/share/doc/*" "--dpkgopt=path-include=/usr/share/doc/*/copyright"
        "--dpkgopt=path-exclude=/usr/share/info/*" "--dpkgopt=path-exclude=/usr/share/lintian/*"
        "--aptopt=APT::Install-Recommends \"false\""
        "--customize-hook=: >\"\$1/etc/apt/sources.list\"; rm -f \"\$1\"/etc/apt/sources.list.d/*"
        "--customize-hook=rm -f \"\$1/etc/hostname\" \"\$1/etc/resolv.conf\" \"\$1\"/var/log/*.log \"\$1\"/var/log/apt/*")
    base=$cache/$suite-$(printf '%s\n' "${options[@]}" "$sources" | sha256sum | cut -c 1-16).tar
    [ ! -f "$base" ] || return 0
    need_room "$cache" 1000 "a minimal Debian"
    printf '%s\n' "$sources" >"$scratch/sources.list"
    rm -f "$cache/$suite"-*.tar
    logged "the base" "$cache/base.log" timeout --kill-after=20 1200 \
        mmdebstrap "${options[@]}" "$suite" "$scratch/base.tar" "$scratch/sources.list"
    mv "$scratch/base.tar" "$base"
}

import_base() { # the archive as an image, under the name localhost/kproxy-base
    local container
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$base" / >/dev/null
    buildah commit --quiet --rm "$container" localhost/kproxy-base >/dev/null
}

lend() { # a folder with what apt and pip need to reach their mirrors, mounted while the build's commands run
    local setting value
    mkdir -p "$scratch/lent"
    printf '%s\n' "$sources" >"$scratch/lent/sources.list"
    echo "[global]" >"$scratch/lent/pip.conf"
    for setting in index-url extra-index-url trusted-host timeout retries proxy; do
        value=$(python3 -m pip config get "global.$setting" 2>/dev/null || python3 -m pip config get ":env:.$setting" 2>/dev/null || true)
        # An index on this machine's disk is not there while the image is built.
        value=$(printf '%s' "$value" | tr ' ' '\n' | { grep -v '^file:' || true; } | tr '\n' ' ')
        [ -z "${value// /}" ] || echo "$setting = $value" >>"$scratch/lent/pip.conf"
    done
    local there=""
    if [ -f "$authorities" ]; then
        cp "$authorities" "$scratch/lent/authorities.crt"
        there=/run/lent/authorities.crt
        echo "cert = $there" >>"$scratch/lent/pip.conf"
    fi
    for setting in auth.conf auth.conf.d; do
        [ ! -e "/etc/apt/$setting" ] || cp -R "/etc/apt/$setting" "$scratch/lent/$setting"
    done
    {
        apt_settings "$there"
        echo 'Dir::Etc::SourceList "/run/lent/sources.list";'
        echo 'Dir::Etc::netrc "/run/lent/auth.conf";'
        echo 'Dir::Etc::netrcparts "/run/lent/auth.conf.d/";'
    } >"$scratch/lent/apt.conf"
    # apt reads the sources as a user of its own.
    chmod -R a+rX "$scratch/lent"
    chmod a+rx "$scratch"
}

build() {
    local arguments=() name
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
        [ -z "${!name:-}" ] || arguments+=(--build-arg "$name=${!name}")
    done
    # The format that has health checks. The network is this machine's, because packages come from there.
    logged "the image" "$cache/build.log" timeout --kill-after=20 2400 \
        buildah build --isolation chroot --network host --format docker --pull-never \
        --ignorefile "$tree/deploy/Dockerfile.dockerignore" --volume "$scratch/lent:/run/lent:ro" \
        --build-arg BASE=localhost/kproxy-base --build-arg APT_CONFIG=/run/lent/apt.conf \
        --build-arg PIP_CONFIG_FILE=/run/lent/pip.conf "${arguments[@]}" \
        --file "$tree/deploy/Dockerfile" --tag "$image" "$tree"
}

main() {
    local from=$SECONDS size base_size
    : >"$cache/base.log"
    : >"$cache/build.log"
    make_base
    import_base
    lend
    build
    if [ -n "${IMAGE_ARCHIVE:-}" ]; then
        rm -f "$IMAGE_ARCHIVE"
        buildah push --quiet "$image" "docker-archive:$IMAGE_ARCHIVE:$image"
    fi
    size=$(buildah images --format '{{.Size}}' "$image")
    base_size=$(buildah images --format '{{.Size}}' localhost/kproxy-base)
    echo "$image: $size, of which its base is $base_size; built in $((SECONDS - from)) s"
    [ -z "$python" ] || attend "the image runs" "" "$python" "$here/image-test.py" "$image"
}

# The last line, read with the shell's first look at the function: a run survives that this file is changed meanwhile.
main; exit
