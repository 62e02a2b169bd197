# shellcheck shell=bash
# Debian's packages. Only their programs are used: no service of theirs has to run, and none is started.

NODE_PROGRAMS=(containerd=containerd runc=runc ip=iproute2 nft=nftables iptables=iptables nsenter=util-linux flock=util-linux
    mount=mount find=findutils hostname=hostname python3=python3)
BUILD_PROGRAMS=(cc=gcc python3=python3 tar=tar)
KIND_PROGRAMS=(dockerd=docker.io docker=docker.io debootstrap=debootstrap)

# missing_packages PROGRAM=PACKAGE...: the packages of programs that are not there
missing_packages() {
    local pair
    for pair in "$@"; do command -v "${pair%%=*}" >/dev/null || echo "${pair#*=}"; done | sort -u
}

# need_programs DEPS PROGRAM=PACKAGE...: DEPS is the command that installs them
need_programs() {
    local missing
    missing=$(missing_packages "${@:2}" | paste -sd' ')
    [ -z "$missing" ] || die "packages are missing ($missing): run 'cluster $1'"
}

cmd_deps() {
    need_root
    local programs=("${NODE_PROGRAMS[@]}" "${BUILD_PROGRAMS[@]}") packages policy=/usr/sbin/policy-rc.d
    [ "${1:-}" != --kind ] || programs+=("${KIND_PROGRAMS[@]}")
    mapfile -t packages < <(missing_packages "${programs[@]}")
    [ -e /usr/include/stdlib.h ] || packages+=(libc6-dev)
    if [ ${#packages[@]} -gt 0 ]; then
        command -v apt-get >/dev/null || die "install what provides: ${packages[*]}"
        say "installing ${packages[*]}"
        if [ ! -e $policy ]; then # keeps the packages' services from being started
            printf '#!/bin/sh\nexit 101\n' >$policy
            chmod +x $policy
            # shellcheck disable=SC2064
            trap "rm -f $policy" EXIT
        fi
        export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
        apt-get -o DPkg::Lock::Timeout=300 -q update
        # Since Debian 13, Docker's command is a package of its own.
        [[ " ${packages[*]} " != *" docker.io "* ]] || ! apt-cache show docker-cli >/dev/null 2>&1 || packages+=(docker-cli)
        apt-get -o DPkg::Lock::Timeout=300 -q install -y --no-install-recommends "${packages[@]}"
    fi
    "$ROOT/../../tools/check-toolchain" go
    say "all packages are there"
}
