#!/bin/bash
# Tries the committed tree as on a new machine: a minimal Debian root for each suite, and in it, from a fresh clone,
# `make demo` and `make test`: first as an ordinary user while nothing is installed, where one line must say what is
# missing, then as root, then as the ordinary user with the Debian packages there.
#
# Each command runs in namespaces of its own (mount, PID, UTS, IPC), so that neither a process, a mount nor a named network
# namespace outlives it, and /run/netns is not this machine's. The network is this machine's, because packages come from there.
#
# usage: fresh.sh [SUITE...]      bookworm and trixie by default
#   FRESH_STEPS      demo, test, or demo,test (the default)
#   FRESH_TESTS      arguments of pytest, which then runs in place of `make test`
#   FRESH_TIMEOUT    seconds that one command may take, 5400 by default
#   FRESH_KEEP       yes: the root of a suite where something failed is kept, with how to run a command in it
#   FRESH_LOGS       the folder of logs, one for each suite and command; $KPROXY_CACHE/fresh/logs by default
#   KPROXY_CACHE     where the minimal roots are kept between runs; ~/.cache/kproxy by default
# exit: 0 all as it should be, 1 something failed, 2 bad usage
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$here/.." && pwd)
export HOME="${HOME:-/root}" PATH="$PATH:/usr/sbin:/sbin"
cache=${KPROXY_CACHE:-$HOME/.cache/kproxy}/fresh
logs=${FRESH_LOGS:-$cache/logs}
steps=${FRESH_STEPS:-demo,test}
limit=${FRESH_TIMEOUT:-5400}
keep=${FRESH_KEEP:-no}
program=fresh
# shellcheck source=scripts/common.sh
. "$here/common.sh"
# What a user installs by hand to clone and to say make; the rest is scripts/setup.sh's.
packages=make,git,ca-certificates

inside() { # inside ROOT USER COMMAND [NAME=VALUE...]: the first process of the namespaces, by the call at the end of `within`
    local root=$1 user=$2 command=$3 status=0 home=/root path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    shift 3
    if [ "$user" != root ]; then
        # As Debian sets PATH for who is not root: no /usr/sbin.
        home=/home/$user path=/usr/local/bin:/usr/bin:/bin
    fi
    hostname kproxy-fresh
    # A mount of its own, which pivot_root and `ip netns exec` ask of the root.
    mount --bind "$root" "$root"
    mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
    mount -t sysfs -o nosuid,nodev,noexec sysfs "$root/sys"
    mount --bind /dev "$root/dev"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
    mount -t tmpfs -o nosuid,nodev,mode=1777 tmpfs "$root/dev/shm"
    mount -t tmpfs -o nosuid,nodev,mode=0755 tmpfs "$root/run"
    mkdir -p "$root/run/lock"
    # Modules are of the machine's kernel.
    if [ -d /lib/modules ]; then
        mkdir -p "$root/lib/modules"
        mount --bind -o ro /lib/modules "$root/lib/modules"
    fi
    # Not chroot, in which no user namespace can be made (a browser's sandbox is one); and nothing of the machine's files
    # can be reached any more.
    mkdir -p "$root/mnt/machine"
    cd "$root"
    pivot_root . mnt/machine
    cd /
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    hash -r
    umount --lazy /mnt/machine
    # In the background, and this process waits: it is the one that takes in whatever loses its parent.
    # A shell has what it starts in the background ignore SIGINT, and what that starts inherits it.
    runuser -u "$user" -- /usr/bin/env -i --default-signal=INT,QUIT "PATH=$path" "HOME=$home" "USER=$user" \
        "LOGNAME=$user" SHELL=/bin/bash TERM=dumb "$@" /bin/bash -c "cd && $command" </dev/null &
    wait "$!" || status=$?
    local left
    left=$(left_behind)
    if [ -n "$left" ]; then
        echo "left behind by: $command"
        echo "$left"
        [ "$status" -ne 0 ] || status=1
    fi
    return "$status"
}

left_behind() { # named network namespaces, and processes that do not end within ten seconds
    local file text until=$((SECONDS + 10)) left=""
    while :; do
        left=$(
            find /run/netns -mindepth 1 -printf 'network namespace %f\n' 2>/dev/null || true
            for file in /proc/[0-9]*/cmdline; do
                # Without an empty one: a process that is ending. The shells of this script have its name in theirs.
                text=$(tr '\0' ' ' 2>/dev/null <"$file" || true)
                case $text in "" | *fresh.sh\ --inside\ *) ;; *) echo "process $text" ;; esac
            done
        )
        [ -n "$left" ] && [ "$SECONDS" -lt "$until" ] || break
        sleep 0.2
    done
    [ -z "$left" ] || printf '%s\n' "$left"
}

build() { # build SUITE FOLDER: of itself, as a process that can be ended
    mmdebstrap --mode=root --variant=minbase --format=directory --include="$packages" \
        "$1" "$2/root" - <"$2/sources"
}

case ${1:-} in
    -h | --help)
        sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "$0"
        exit 0
        ;;
    --build | --inside)
        # A process of its own, so that it can be ended; it does not end before what it runs has.
        trap 'exit 143' TERM
        step=${1#--}
        shift
        "$step" "$@"
        exit
        ;;
esac

[ "$#" -gt 0 ] || set -- bookworm trixie
for suite in "$@"; do
    case $suite in
        bookworm | trixie) ;;
        *) fail 2 "'$suite' is no suite that kproxy is tried on: bookworm (Debian 12), trixie (Debian 13)" ;;
    esac
done
case $steps in
    demo | test | demo,test) ;;
    *) fail 2 "FRESH_STEPS must be demo, test or demo,test, not '$steps'" ;;
esac
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail 2 "FRESH_TIMEOUT must be a number of seconds, not '$limit'"
case $keep in
    yes | no) ;;
    *) fail 2 "FRESH_KEEP must be yes or no, not '$keep'" ;;
esac
[ "$(id -u)" -eq 0 ] || fail 1 "only root can make a root directory; run: sudo make fresh"
missing=""
need() { # need COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need apt-get apt
[ -z "$missing" ] || fail 1 "needs a machine with apt, whose sources it uses"
need mmdebstrap mmdebstrap
need gpg gpg
need git git
need mount mount
need unshare util-linux
need hostname hostname
need pivot_root util-linux
# shellcheck disable=SC2086  # a list of names
[ -z "$missing" ] || install_packages $missing
# A checkout may belong to somebody else than root.
commit=$(git -c safe.directory='*' -C "$tree" rev-parse --verify --quiet HEAD) ||
    fail 2 "$tree is no git checkout: what is tried is a clone of its last commit"
changed=$(git -c safe.directory='*' -C "$tree" status --porcelain | wc -l)
[ "$changed" -eq 0 ] || say "$changed files are not committed as they are now, and so not tried"
unshare --mount --pid --fork true 2>/dev/null || fail 1 "this machine does not let root make mount and PID namespaces"

mkdir -p "$cache" "$logs" || fail 1 "cannot make $cache and $logs; name other folders in KPROXY_CACHE and FRESH_LOGS"
chmod 0700 "$cache"
# Two runs at once would also share the machine's two loopback addresses and their ports.
exec 9>"$cache/lock"
scratch=""
finish() {
    code=$?
    trap - EXIT
    end_child
    [ -z "$scratch" ] || rm -rf --one-file-system "$scratch"
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
flock --nonblock 9 || attend "waiting for another run" "" flock --timeout 14400 9 || fail 1 "another run still holds $cache/lock"

minimal() { # minimal SUITE: $image, the minimal root; made if it is not there, or if its recipe or the sources changed
    local sources recipe status=0 from=$SECONDS log=$logs/$1-root.log
    sources=$(need_sources "$1") || fail 1 "apt of this machine has no source of Debian"
    recipe=$(printf '%s\n' "$packages" "$sources" | sha256sum | cut -c 1-16)
    image=$cache/$1-$recipe
    [ ! -d "$image" ] || return 0
    need_room "$cache" 1000 "a minimal root"
    scratch=$cache/building
    rm -rf --one-file-system "$scratch"
    mkdir -p "$scratch"
    printf '%s\n' "$sources" >"$scratch/sources"
    attend "a minimal root of $1" "$log" timeout --kill-after=20 1200 bash "$here/fresh.sh" --build "$1" "$scratch" || status=$?
    if [ "$status" -ne 0 ]; then
        tail -n 15 "$log" >&2
        fail 1 "$1: the minimal root could not be made (exit $status); the whole log is $log"
    fi
    rm -rf --one-file-system "$cache/$1"-*
    mv "$scratch" "$image"
    scratch=""
    say "$(printf '%5d s  %-9s a minimal root, %s' $((SECONDS - from)) "$1" "$(du -sh "$image/root" | cut -f 1)")"
}

prepare() { # prepare SUITE: $root, a copy with this machine's configuration, a user, and the committed tree to clone
    need_room "$cache" 3500 "a root with all that kproxy needs"
    scratch=$(mktemp -d "$cache/run.XXXXXX")
    root=$scratch/root
    cp -a --reflink=auto "$image/root" "$root"
    chmod 0755 "$scratch"
    lent=()
    lend_configuration "$root"
    local item there=/etc/lent/authorities.crt
    [ -f "$root$there" ] || there=""
    apt_settings "$there" >"$root/etc/apt/apt.conf.d/00machine"
    for item in /etc/apt/auth.conf /etc/apt/auth.conf.d /usr/local/share/ca-certificates; do
        [ ! -e "$item" ] || cp -RT "$item" "$root$item"
    done
    # As Debian's installer writes it.
    printf '127.0.0.1\tlocalhost\n127.0.1.1\tkproxy-fresh\n::1\tlocalhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
    echo kproxy-fresh >"$root/etc/hostname"
    chroot "$root" /usr/sbin/useradd --create-home --shell /bin/bash user
    git -c safe.directory='*' -C "$tree" bundle create --quiet "$root/srv/kproxy.bundle" HEAD
    chmod a+r "$root/srv/kproxy.bundle"
}

apart=(unshare --mount --pid --uts --ipc --fork --kill-child --propagation private bash "$here/fresh.sh" --inside)

within() { # within LOG USER COMMAND: its exit code
    attend "$suite, $2: ${3##*&& }" "$1" timeout --kill-after=30 "$limit" "${apart[@]}" "$root" "$2" "$3" "${lent[@]}"
}

failures=()
began=$SECONDS
check() { # check NAME USER COMMAND: it must succeed
    local name=$1 log=$logs/$suite-$1.log from=$SECONDS status=0
    : >"$log"
    within "$log" "$2" "$3" || status=$?
    if [ "$status" -eq 0 ]; then
        say "$(printf '%5d s  %-9s %-5s %s: ok%s' $((SECONDS - from)) "$suite" "$2" "$name" "$(summary "$log")")"
        return
    fi
    wrong "$name" "$2" "$log" "exit $status$([ "$status" -ne 124 ] || echo ", not done after $limit s")$(summary "$log")"
}

summary() { # summary LOG: pytest's last line, if there is one
    sed -n 's/^\(=* *\)\([0-9]* \(passed\|failed\).* in [0-9.]*s.*[^= ]\).*$/, \2/p' "$1" | tail -n 1
}

wrong() { # wrong NAME USER LOG WHY
    tail -n 40 "$3" >&2
    say "      $suite $2 $1: FAILED, $4; the whole log is $3"
    failures+=("$suite $2 $1")
}

refuse() { # refuse NAME USER COMMAND: it must fail with one line that names Debian packages
    local name=$1 log=$logs/$suite-$1.log status=0 said
    : >"$log"
    within "$log" "$2" "$3" || status=$?
    # make shows the command that it runs, and tells at the end that it failed.
    said=$(grep -v -e '^make' -e '^PYTHON=' "$log" || true)
    case $status:$said in
        2:*$'\n'*) wrong "$name" "$2" "$log" "more than one line" ;;
        2:"kproxy needs Debian packages that are missing; install them with: sudo apt-get install "*python3-venv*)
            say "$(printf '%5d s  %-9s %-5s %s: says what is missing' 0 "$suite" "$2" "$name")"
            ;;
        *) wrong "$name" "$2" "$log" "exit $status, and not the one line that says what is missing" ;;
    esac
}

try() { # try SUITE
    suite=$1
    local before=${#failures[@]} test="make test" clone="git clone --quiet /srv/kproxy.bundle kproxy && cd kproxy"
    [ -z "${FRESH_TESTS:-}" ] || test="make setup && .venv/bin/pytest -n 2 $FRESH_TESTS"
    minimal "$suite"
    prepare "$suite"
    check clone-user user "git clone --quiet /srv/kproxy.bundle kproxy"
    refuse demo-bare user "cd kproxy && make demo"
    refuse test-bare user "cd kproxy && make test"
    check clone root "$clone"
    case $steps in demo*) check demo root "cd kproxy && make demo" ;; esac
    # As root nothing may skip: a skip would hide a package that is not installed.
    case $steps in *test) check test root "cd kproxy && export CI=true && $test" ;; esac
    case $steps in demo*) check demo-user user "cd kproxy && make demo" ;; esac
    case $steps in *test) check test-user user "cd kproxy && $test" ;; esac
    if [ "$keep" = yes ] && [ "${#failures[@]}" -gt "$before" ]; then
        say "$suite is kept in $scratch; a command in it: ${apart[*]} $root root 'cd kproxy && COMMAND'"
    else
        rm -rf --one-file-system "$scratch"
    fi
    scratch=""
}

main() {
    say "commit ${commit:0:12} on $*; logs in $logs"
    for suite in "$@"; do
        try "$suite"
    done
    if [ "${#failures[@]}" -gt 0 ]; then
        fail 1 "$(printf '%s, ' "${failures[@]}" | sed 's/, $//'): failed; $((SECONDS - began)) s in all"
    fi
    say "all as it should be; $((SECONDS - began)) s in all"
}

# The last line, read with the shell's first look at the function: a run survives that this file is changed meanwhile.
main "$@"; exit
