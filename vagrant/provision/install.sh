#!/bin/sh
# Installs kproxy on a Debian machine: the Debian packages that it needs, a virtual environment in /opt/kproxy, and the
# commands kproxy and (where this tree has it) kproxy-cni in /usr/local/bin. Running it again brings a machine up to date.
#
# usage: install.sh SOURCE [dependencies|kproxy|all]
#   SOURCE        a checkout of kproxy; nothing is written to it
#   dependencies  only what kproxy depends on, by SOURCE/pyproject.toml (needs a network)
#   kproxy        only kproxy itself (needs no network)
#   all           both; this is the default
set -eu

source=${1:?usage: install.sh SOURCE [dependencies|kproxy|all]}
what=${2:-all}
venv=/opt/kproxy

[ -f "$source/pyproject.toml" ] || { echo "install.sh: $source is no checkout of kproxy: it has no pyproject.toml" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "install.sh: must run as root" >&2; exit 2; }
case $what in
    dependencies | kproxy | all) ;;
    *) echo "install.sh: '$what' is none of dependencies, kproxy, all" >&2; exit 2 ;;
esac

install_debian_packages() {
    # gcc and the headers are for python-iptables, which compiles a small extension.
    missing=""
    for package in python3 python3-venv python3-dev gcc libc6-dev iptables nftables ipset ipvsadm conntrack iproute2 iputils-ping kmod procps; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # shellcheck disable=SC2086  # a list of names
    apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

install_python_packages() {
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    # What pyproject.toml names as dependencies, with all extras, and as what builds kproxy: so that kproxy itself installs
    # without a network.
    wanted=$(mktemp)
    "$venv/bin/python" - "$source/pyproject.toml" >"$wanted" <<'PYTHON'
import sys
import tomllib

with open(sys.argv[1], "rb") as file:
    document = tomllib.load(file)
extras = document["project"]["optional-dependencies"]


def flat(names):  # what each extra means, where one has others: kube-kproxy[agent,pcap]
    for name in names:
        if name.startswith("kube-kproxy["):
            for extra in name[len("kube-kproxy[") : -1].split(","):
                yield from flat(extras[extra])
        else:
            yield name


wanted = [*document["project"]["dependencies"], *flat(["kube-kproxy[all]"]), *document["build-system"]["requires"]]
print("\n".join(dict.fromkeys(wanted)))
PYTHON
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --requirement "$wanted"
    rm -f "$wanted"
}

install_kproxy() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-index --no-deps \
        --no-build-isolation --force-reinstall "$source"
    for command in kproxy kproxy-cni; do
        [ ! -x "$venv/bin/$command" ] || ln -sf "$venv/bin/$command" "/usr/local/bin/$command"
    done
    echo "installed $("$venv/bin/kproxy" --version) with $("$venv/bin/python" --version)"
}

if [ "$what" != kproxy ]; then
    install_debian_packages
    install_python_packages
fi
if [ "$what" != dependencies ]; then
    install_kproxy
fi
