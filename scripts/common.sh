# What scripts/fresh.sh and the virtual machine's image.sh and test.sh share; sourced by bash. $program begins each message.
# shellcheck shell=bash

say() {
    echo "${program:-vm}: $*" >&2
}

fail() { # fail CODE MESSAGE
    say "$2"
    exit "$1"
}

check_sources() { # that VM_SOURCES, where it is set, is a file of apt sources
    [ -z "${VM_SOURCES:-}" ] || grep -qs '^deb ' "$VM_SOURCES" ||
        fail 2 "VM_SOURCES must be a file with lines that begin with 'deb ', not '$VM_SOURCES'"
}

child=""
attend() { # attend WHAT LOG COMMAND...: run it, with a line every half a minute; its exit code. LOG: a file, or ""
    local what=$1 log=$2
    shift 2
    # In the background, so that a signal to this script is not held back until the command has ended; a command and no
    # function, so that the signal can be handed on: `timeout` gives it to all that it started.
    if [ -n "$log" ]; then
        # Without the descriptor of the cache's lock, which must not outlive this script.
        "$@" >>"$log" 2>&1 9>&- &
    else
        "$@" &
    fi
    child=$!
    await "$what"
}

await() { # await WHAT [FILE]: the same for a $child that was started already; no line while FILE grows
    local from=$SECONDS told=$SECONDS status=0
    while kill -0 "$child" 2>/dev/null; do
        sleep 0.2
        if [ $((SECONDS - told)) -ge 30 ]; then
            told=$SECONDS
            [ -z "${2:-}" ] || [ -z "$(find "$2" -newermt '-30 seconds')" ] || continue
            say "$(printf '%4d s  %s, still at it' $((SECONDS - from)) "$1")"
        fi
    done
    wait "$child" || status=$?
    child=""
    return "$status"
}

end_child() {
    if [ -n "$child" ] && kill "$child" 2>/dev/null; then
        wait "$child" || true
    fi
    child=""
}

need_room() { # need_room FOLDER MEGABYTES WHAT
    local free
    free=$(df --output=avail -m "$1" | tail -n 1)
    [ "$free" -ge "$2" ] || fail 1 "$3 needs $2 MB in $1, and $((free)) MB are free"
}

install_packages() { # install_packages NAME...: Debian packages, as root
    local said status=0
    said=$(mktemp)
    say "installing Debian packages: $*"
    # shellcheck disable=SC2016  # the inner shell expands it
    attend "installing Debian packages" "$said" timeout --kill-after=20 600 env DEBIAN_FRONTEND=noninteractive \
        sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"' sh "$@" || status=$?
    [ "$status" -eq 0 ] || tail -n 15 "$said" >&2
    rm -f "$said"
    [ "$status" -eq 0 ] || fail 1 "could not install $* (exit $status)"
}

debian_sources() { # debian_sources SUITE: this machine's own apt sources, as lines for that suite
    # apt knows its sources whatever file and form they are written in; only Debian's own belong in a root. A machine has
    # those of its own suite; another suite has the same ones under its name: SUITE, SUITE-updates, SUITE-security.
    # shellcheck disable=SC2016  # apt expands these
    apt-get indextargets --format '$(ORIGIN) $(RELEASE) deb $(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite="$1" '$1 == "Debian" && $5 == "main" && $2 ~ /^[a-z]+(-updates|-security)?$/ {
            sub(/^[a-z]+/, suite, $2); print $3, $4, $2, $5 }' | sort -u
}

need_sources() { # need_sources SUITE: the same; asks apt to read its sources first if it never did, and fails without any
    local found
    found=$(debian_sources "$1")
    if [ -z "$found" ]; then
        apt-get update -qq >&2
        found=$(debian_sources "$1")
    fi
    [ -n "$found" ] || return 1
    printf '%s\n' "$found"
}

# Whom clients of this machine trust.
authorities=${PIP_CERT:-${REQUESTS_CA_BUNDLE:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}}

apt_settings() { # apt_settings FILE: how apt of this machine reaches its sources, as lines of apt.conf
    # Proxies, authorities and what it tolerates of dates. FILE: where the authorities will be, "" for nowhere.
    local settings
    settings=$(apt-config dump | grep -E '^Acquire::(https?|Check-Valid-Until|Check-Date|Retries)' || true)
    printf '%s\n' "$settings"
    [ -z "$1" ] || grep -q '^Acquire::https::.*CaInfo' <<<"$settings" || echo "Acquire::https::CaInfo \"$1\";"
}

lent=()
lend_configuration() { # lend_configuration ROOT: pip and npm in ROOT fetch as this machine's do; sets lent, their environment
    local root=$1 name
    mkdir -p "$root/etc/lent"
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
    if [ -f "$HOME/.config/pip/pip.conf" ]; then
        cp "$HOME/.config/pip/pip.conf" "$root/etc/lent/pip.conf"
        chmod a+r "$root/etc/lent/pip.conf"
        lent+=(PIP_CONFIG_FILE=/etc/lent/pip.conf)
    fi
    if [ -f "$authorities" ]; then
        cp "$authorities" "$root/etc/lent/authorities.crt"
        chmod a+r "$root/etc/lent/authorities.crt"
        lent+=(PIP_CERT=/etc/lent/authorities.crt NODE_EXTRA_CA_CERTS=/etc/lent/authorities.crt)
    fi
    for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL \
        PIP_TRUSTED_HOST PIP_DEFAULT_TIMEOUT PIP_RETRIES npm_config_registry; do
        [ -z "${!name:-}" ] || lent+=("$name=${!name}")
    done
}
