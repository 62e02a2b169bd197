# shellcheck shell=bash
# Up and down, of a cluster and of its nodes.

ALL_NAMESPACES='(lan|cli|rt|n[0-9])'

need_up() {
    [ -f "$STATE/config" ] || die "no cluster '$CLUSTER_NAME' is up: run 'cluster up'"
    unset "${PROXY_VARIABLES[@]}"
}

check_machine() {
    need_programs deps "${NODE_PROGRAMS[@]}"
    need_build
    case $(readlink -m "$CLUSTER_HOME")/ in
        /run/* | /var/log/* | /var/lib/*) die "CLUSTER_HOME=$CLUSTER_HOME: nodes see a /run, /var/log and /var/lib of their own, choose another place" ;;
    esac
    load_kernel_modules
}

# all_running: succeeds if all nodes run
all_running() {
    local i
    for ((i = 1; i <= NODES; i++)); do recorded "$STATE/n$i.pid" >/dev/null || return 1; done
}

cmd_up() {
    need_root
    local nodes=1 kubelets=yes router='' i
    while [ $# -gt 0 ]; do
        case $1 in
            --nodes) nodes=${2:-}; shift ;;
            --control-only) kubelets='' ;;
            --with-router) router=yes ;;
            *) die "up: what is '$1'?" ;;
        esac
        shift
    done
    [[ $nodes =~ ^[1-9]$ ]] || die "--nodes takes 1 to 9"
    [ -n "$kubelets" ] || [ "$nodes" = 1 ] || die "--control-only has no nodes"
    lock "$CLUSTER_NAME" 300
    if [ -f "$STATE/config" ]; then
        [ "$nodes $kubelets $router" = "$NODES $KUBELETS $ROUTER" ] && [ -e "$STATE/ready" ] && all_running && { say "already up"; return; }
        die "cluster '$CLUSTER_NAME' exists already, in another shape or unfinished: run 'cluster down' first"
    fi
    NODES=$nodes KUBELETS=$kubelets ROUTER=$router
    unset "${PROXY_VARIABLES[@]}"
    check_machine
    if [ -n "$(namespaces "$ALL_NAMESPACES")" ] || cgroups "$CLUSTER_NAME-n[0-9]" >/dev/null; then
        die "namespaces or cgroups $CLUSTER_NAME-* exist, but not of this CLUSTER_HOME: choose another CLUSTER_NAME, or end them: 'cluster down'"
    fi
    rm -rf "$STATE"
    mkdir -p "$STATE/log"
    printf '%s=%q\n' NODES "$NODES" KUBELETS "$KUBELETS" ROUTER "$ROUTER" >"$STATE/config"
    net_up
    for ((i = 1; i <= NODES; i++)); do net_node_up "$i"; done
    make_certificates || { tail "$STATE/log/certificates.log" >&2; die "the certificates could not be made"; }
    say "networks and certificates"
    node_start 1
    until_ok 300 k get --raw /readyz || die "the API server does not answer; logs in $STATE/n1/log"
    say "the API answers"
    # The API server calls kubelets (logs, exec) as a user without rights of its own.
    k create clusterrolebinding apiserver-to-kubelet --clusterrole=system:kubelet-api-admin --user=kube-apiserver-kubelet-client >/dev/null
    for ((i = 2; i <= NODES; i++)); do node_start "$i"; done
    if [ -n "$KUBELETS" ]; then
        k apply -f "$ROOT/coredns.yaml" >/dev/null
        for ((i = 1; i <= NODES; i++)); do
            until_ok 300 k wait --for=condition=Ready "node/n$i" --timeout=5s || die "n$i is not Ready; logs in $STATE/n$i/log"
            say "n$i is Ready"
        done
        k -n kube-system rollout status deploy/coredns --timeout=300s >/dev/null || die "CoreDNS does not start"
        say "DNS answers"
    fi
    until_ok 300 k get serviceaccount default || die "there is no default service account; logs in $STATE/n1/log"
    : >"$STATE/ready"
    say "up: Kubernetes $KUBE_VERSION, $(if [ -n "$KUBELETS" ]; then echo "$NODES node(s)"; else echo "control plane only"; fi), client $(client_address)"
}

cmd_down() {
    need_root
    lock "$CLUSTER_NAME" 300
    set +e
    local i found
    for i in {1..9}; do end "$STATE/n$i.pid"; done
    mapfile -t found < <(namespaces "$ALL_NAMESPACES")
    delete_ns "${found[@]}"
    for i in {1..9}; do remove_cgroups "$CLUSTER_NAME-n$i"; done
    rm -rf "$STATE" 2>/dev/null || { sleep 1; rm -rf "$STATE"; }
    say "down"
}

cmd_node_down() {
    need_root
    lock "$CLUSTER_NAME" 300
    need_up
    local number
    number=$(node_number "${1:-}")
    node_stop "$number"
    say "n$number is off"
}

cmd_node_up() {
    need_root
    lock "$CLUSTER_NAME" 300
    need_up
    local number
    number=$(node_number "${1:-}")
    ! recorded "$STATE/n$number.pid" >/dev/null || die "n$number is running"
    node_stop "$number"
    net_node_up "$number"
    node_start "$number"
    until_ok 300 k get --raw /readyz || die "the API does not answer; logs in $STATE/n1/log"
    [ -z "$KUBELETS" ] || until_ok 300 node_live "$number" || die "n$number did not come back; logs in $STATE/n$number/log"
    say "n$number is on"
}

cmd_status() {
    local i pid rc=0
    if [ ! -f "$STATE/config" ]; then
        echo "cluster $CLUSTER_NAME: down"
        rc=1
    else
        echo "cluster $CLUSTER_NAME: Kubernetes $KUBE_VERSION, client $(client_address)${ROUTER:+ behind a router}"
        for ((i = 1; i <= NODES; i++)); do
            if pid=$(recorded "$STATE/n$i.pid"); then echo "  n$i $LAN.1$i on (process $pid)"; else echo "  n$i $LAN.1$i off"; rc=1; fi
        done
        [ -e "$STATE/ready" ] || { echo "  'up' did not finish"; rc=1; }
    fi
    if recorded "$KIND_DIR/dockerd.pid" >/dev/null; then
        echo "kind: $([ -e "$KIND_DIR/ready" ] && echo up || echo "not ready")"
    else
        echo "kind: down"
    fi
    return $rc
}
