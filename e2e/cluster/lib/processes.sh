# shellcheck shell=bash disable=SC2034
# Messages, locks, and processes that outlive the command which started them.

die() { echo "cluster: $*" >&2; exit 1; }

# say TEXT: prints a line with the seconds since the start of this command
STARTED=${EPOCHREALTIME/./}
say() {
    local tenths=$(((${EPOCHREALTIME/./} - STARTED) / 100000))
    printf '[%4d.%d s] %s\n' $((tenths / 10)) $((tenths % 10)) "$*"
}

need_root() { [ "$(id -u)" = 0 ] || die "this needs root"; }

# Nothing inside a cluster is reached through a web proxy; only `deps` and the builds may need one.
PROXY_VARIABLES=(HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy)

# lock NAME SECONDS: one command at a time may change NAME. Descriptor 9 is the lock; long-lived children must not inherit it (9>&-).
lock() {
    mkdir -p "$CLUSTER_HOME/state"
    exec 9>"$CLUSTER_HOME/state/$1.lock"
    flock --nonblock 9 || {
        say "waiting for another command that works on '$1'"
        flock --wait "$2" 9 || die "another command works on '$1' still; wait for it or stop it"
    }
}

# until_ok SECONDS CMD...: repeats CMD until it succeeds
until_ok() {
    local end=$((EPOCHSECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$EPOCHSECONDS" -lt $end ] || return 1
        sleep 0.1
    done
}

# A process is remembered as "pid start-time boot", so that another process with its number is never killed.
BOOT=$(cat /proc/sys/kernel/random/boot_id)
start_time() {
    local stat
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
    # (fields 3 and on, behind the name in parentheses; the start time is field 22)
    read -ra stat <<<"${stat##*) }"
    echo "${stat[19]}"
}

# spawn PIDFILE LOG CMD...: starts CMD detached. The child writes its own record before it becomes CMD, and holds the lock until then, so
# that `down` finds it however its parent ended.
spawn() {
    local pidfile=$1 log=$2
    shift 2
    (
        me=$BASHPID # (inside $(...) it would be another one)
        echo "$me $(start_time "$me") $BOOT" >"$pidfile"
        exec setsid "$@" 9>&-
    ) </dev/null >>"$log" 2>&1 &
    disown
}

# recorded PIDFILE: prints the pid, if that very process still runs
recorded() {
    local pid start boot
    read -r pid start boot 2>/dev/null <"$1" || return 1
    [ "$boot" = "$BOOT" ] && [ "$(start_time "$pid")" = "$start" ] && echo "$pid"
}

# init_of PIDFILE: the first process of the pid namespace that the recorded `unshare` made
init_of() {
    local pid child=''
    pid=$(recorded "$1") || return 1
    read -r child _ 2>/dev/null <"/proc/$pid/task/$pid/children" || true # (the line has no end)
    [ -n "$child" ] && echo "$child"
}

# end PIDFILE: kills the recorded process and its pid namespace, and waits until both are gone
end() {
    local pid child='' i
    if pid=$(recorded "$1"); then
        child=$(init_of "$1") || true
        kill -9 "$pid" ${child:+"$child"} 2>/dev/null || true
        for ((i = 0; i < 1200; i++)); do
            [ -d "/proc/$pid" ] || { [ -n "$child" ] && [ -d "/proc/$child" ]; } || break
            sleep 0.05
        done
    fi
    rm -f "$1"
}

# enter PIDFILE CMD...: runs CMD in all namespaces of a node, in the caller's folder if the node has it
enter() {
    local init
    init=$(init_of "$1") || return 1
    shift
    # shellcheck disable=SC2016
    nsenter -t "$init" -m -p -n -u -i -- sh -c 'cd "$0" 2>/dev/null || cd /; exec "$@"' "$PWD" "$@"
}

# in_ns NAME CMD...: runs CMD in a network namespace of this cluster
in_ns() {
    local name=$1
    shift
    nsenter --net="/run/netns/$CLUSTER_NAME-$name" -- "$@"
}

# cgroups NAME: the directories of that name, one with version 2, one for each hierarchy with version 1
cgroups() { compgen -G "/sys/fs/cgroup/$1" || compgen -G "/sys/fs/cgroup/*/$1"; }

# remove_cgroups NAME: they empty a moment after their processes died
remove_cgroups() {
    local i found
    for ((i = 0; i < 300; i++)); do
        mapfile -t found < <(cgroups "$1")
        [ ${#found[@]} -gt 0 ] || return 0
        find "${found[@]}" -depth -type d -exec rmdir {} + 2>/dev/null || true
        sleep 0.1
    done
    ! cgroups "$1" >/dev/null || echo "cluster: cgroups $1 are still in use" >&2
}
