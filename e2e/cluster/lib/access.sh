# shellcheck shell=bash disable=SC2153
# Commands on a running cluster. Most become the given command itself (exec), so that signals and exit status are its own.

cmd_kubeconfig() {
    need_up
    echo "$STATE/admin.conf"
}

# enter_network NAME CMD...: becomes CMD in a network namespace of the cluster, with the administrator's kubeconfig and the cluster's programs
enter_network() {
    need_root
    need_up
    [ $# -gt 1 ] || die "which command?"
    local name=$1
    shift
    export KUBECONFIG=$STATE/admin.conf KUBECACHEDIR=$STATE/kubecache PATH=$BIN:$PATH
    export HELM_CACHE_HOME=$STATE/helm/cache HELM_CONFIG_HOME=$STATE/helm/config HELM_DATA_HOME=$STATE/helm/data
    exec nsenter --net="/run/netns/$CLUSTER_NAME-$name" -- "$@"
}

cmd_kubectl() { enter_network n1 "$BIN/kubectl" "$@"; }
cmd_helm() { enter_network n1 "$BIN/helm" "$@"; }
cmd_client() { enter_network cli "$@"; }
cmd_router() {
    [ -n "$ROUTER" ] || die "there is no router: up --with-router"
    enter_network rt "$@"
}

cmd_exec() {
    need_root
    need_up
    [ $# -gt 1 ] || die "exec NODE CMD..."
    local number
    number=$(node_number "$1")
    shift
    recorded "$STATE/n$number.pid" >/dev/null || die "n$number is off"
    export KUBECONFIG=$STATE/admin.conf CONTAINERD_ADDRESS=$SOCKET CONTAINERD_NAMESPACE=k8s.io PATH=$BIN:$PATH
    enter "$STATE/n$number.pid" "$@"
}

cmd_load() {
    need_root
    need_up
    [ $# -gt 0 ] || die "load ARCHIVE..."
    local archive i
    for archive in "$@"; do
        [ -r "$archive" ] || die "cannot read $archive"
        for ((i = 1; i <= NODES; i++)); do
            recorded "$STATE/n$i.pid" >/dev/null || { say "n$i is off: $archive is not loaded there"; continue; }
            enter "$STATE/n$i.pid" ctr -a "$SOCKET" -n k8s.io images import - <"$archive" | sed "s/^/n$i: /"
        done
    done
}

# lb: plays the cloud's load balancer. kube-proxy serves the address on every node once it is in the status; a route spreads flows over the
# nodes that a balancer's health checks would leave in: nodes with a ready endpoint if the policy is Local, all Ready nodes otherwise.
cmd_lb() {
    need_root
    need_up
    [ $# = 2 ] || die "lb [NAMESPACE/]SERVICE IP"
    local service=${1##*/} ip=$2 namespace=default nodes node hops=() where
    [[ $1 != */* ]] || namespace=${1%%/*}
    where=$CLUSTER_NAME-$(balancer)
    k -n "$namespace" patch service "$service" --subresource=status --type=merge \
        -p "{\"status\":{\"loadBalancer\":{\"ingress\":[{\"ip\":\"$ip\",\"ipMode\":\"VIP\"}]}}}" >/dev/null
    if [ "$(k -n "$namespace" get service "$service" -o 'jsonpath={.spec.externalTrafficPolicy}')" = Local ]; then
        nodes=$(k -n "$namespace" get endpointslices -l "kubernetes.io/service-name=$service" \
            -o 'jsonpath={range .items[*].endpoints[?(@.conditions.ready==true)]}{.nodeName}{"\n"}{end}' | sort -u)
    else
        nodes=$(k get nodes --no-headers | awk '$2 ~ /^Ready/ {print $1}')
    fi
    for node in $nodes; do hops+=(nexthop via "$LAN.1${node#n}"); done
    if [ ${#hops[@]} = 0 ]; then
        ip -n "$where" route del "$ip/32" 2>/dev/null || true
        die "$1 has no ready endpoint: its address is set, but there is no route to it yet"
    fi
    ip -n "$where" route replace "$ip/32" "${hops[@]}"
    echo "$1 $ip via $(paste -sd' ' <<<"$nodes")"
}
