# shellcheck shell=bash disable=SC2153
# kind without a Docker daemon of the machine's own and without a registry: a daemon in namespaces of its own, whose rules and mounts never
# reach the machine, an image of nodes that is made here, and kind on top. There is one of them on a machine.

KIND_NAME=packrat
KIND_NS=$KIND_NAME-kind
KIND_DIR=$CLUSTER_HOME/kind
KIND_IMAGE=local/kind-node:$KUBE_VERSION

# kind_exec CMD...: the tools reach the daemon by its socket, and the API through the daemon's network
kind_exec() {
    nsenter --net="/run/netns/$KIND_NS" -- env "${PROXY_VARIABLES[@]/#/-u}" PATH="$BIN:$PATH" \
        DOCKER_HOST="unix://$KIND_DIR/docker.sock" KUBECONFIG="$KIND_DIR/kubeconfig" KUBECACHEDIR="$KIND_DIR/kubecache" \
        KIND_CLUSTER_NAME="$KIND_NAME" HELM_CACHE_HOME="$KIND_DIR/helm/cache" HELM_CONFIG_HOME="$KIND_DIR/helm/config" \
        HELM_DATA_HOME="$KIND_DIR/helm/data" "$@"
}

check_kind_machine() {
    need_programs "deps --kind" "${NODE_PROGRAMS[@]}" "${KIND_PROGRAMS[@]}"
    case $(readlink -m "$CLUSTER_HOME")/ in
        /run/* | /opt/* | /etc/*) die "CLUSTER_HOME=$CLUSTER_HOME: the daemon sees a /run, /opt and /etc of its own, choose another place" ;;
    esac
    load_kernel_modules
}

dockerd_start() {
    dockerd_stop # what a crash may have left
    mkdir -p "$KIND_DIR/docker"
    ip netns add "$KIND_NS"
    ip -n "$KIND_NS" link set lo up
    echo '{}' >"$KIND_DIR/daemon.json"
    : >"$KIND_DIR/dockerd.log"
    export ROOT KIND_DIR KIND_NS
    spawn "$KIND_DIR/dockerd.pid" "$KIND_DIR/dockerd.log" env "${PROXY_VARIABLES[@]/#/-u}" nsenter --net="/run/netns/$KIND_NS" \
        unshare --mount --pid --uts --ipc --propagation private --fork --kill-child --mount-proc "$BASH" "$ROOT/dockerd-init.sh"
    until_ok 300 kind_exec docker version 9>&- || { tail "$KIND_DIR/dockerd.log" >&2; die "dockerd does not start"; }
}

dockerd_stop() {
    end "$KIND_DIR/preload.pid"
    end "$KIND_DIR/dockerd.pid"
    delete_ns "$KIND_NS"
    remove_cgroups "$KIND_NS"
    rm -f "$KIND_DIR/docker.sock"
}

# kind_network: a flat Pod network. Each node gets a bridge for its Pods, and a route to the Pods of every other node.
kind_network() {
    local nodes node subnet address other hop
    nodes=$(kind_exec kubectl get nodes -o 'jsonpath={range .items[*]}{.metadata.name} {.spec.podCIDR} {.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}')
    while read -r node subnet address; do
        [ -n "$address" ] || return 1
        kind_exec docker exec -i "$node" sh -c 'cat >/etc/cni/net.d/10-bridge.conflist' <<CONFIG
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam", "ranges": [[{"subnet": "$subnet"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
CONFIG
        while read -r other subnet hop; do
            [ "$other" = "$node" ] || echo "ip route replace $subnet via $hop"
        done <<<"$nodes" | kind_exec docker exec -i "$node" sh -c 'cat >/kind/pod-network && systemctl restart pod-network'
    done <<<"$nodes"
}

cmd_kind_up() {
    need_root
    local nodes=1 i
    [ "${1:---nodes}" = --nodes ] || die "kind-up: what is '$1'?"
    [ $# -eq 0 ] || nodes=${2:-}
    [[ $nodes =~ ^[1-9]$ ]] || die "--nodes takes 1 to 9"
    check_kind_machine
    lock kind 300
    [ -e "$CLUSTER_HOME/stamps/kind-image" ] || die "the image of nodes is not built: run 'cluster kind-build'"
    ! recorded "$KIND_DIR/dockerd.pid" >/dev/null || die "kind is up already, or did not come up: run 'cluster kind-down' first"
    dockerd_start
    say "dockerd answers"
    kind_exec kind delete cluster 9>&- >/dev/null 2>&1 || true
    {
        cat <<CONFIG
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking: {kubeProxyMode: nftables, disableDefaultCNI: true}
featureGates: {KubeletInUserNamespace: true}
kubeadmConfigPatches:
- |
  kind: KubeletConfiguration
  authorization: {webhook: {cacheUnauthorizedTTL: 1s}}
  failCgroupV1: false
nodes:
- {role: control-plane, image: "$KIND_IMAGE"}
CONFIG
        for ((i = 2; i <= nodes; i++)); do echo "- {role: worker, image: \"$KIND_IMAGE\"}"; done
    } >"$KIND_DIR/cluster.yaml"
    kind_exec kind create cluster --config "$KIND_DIR/cluster.yaml" 9>&- || die "kind failed; 'cluster kind-down' cleans up"
    until_ok 300 kind_network 9>&- || die "the nodes get no networks for Pods"
    kind_exec kubectl wait --for=condition=Ready nodes --all --timeout=300s 9>&- >/dev/null || die "a node is not Ready"
    kind_exec kubectl -n kube-system rollout status deploy/coredns --timeout=300s 9>&- >/dev/null || die "CoreDNS does not start"
    : >"$KIND_DIR/ready"
    say "up: use 'cluster kind-exec kubectl ...'"
}

cmd_kind_down() {
    need_root
    lock kind 300
    set +e
    if recorded "$KIND_DIR/dockerd.pid" >/dev/null; then timeout 60 "$SELF" kind-exec kind delete cluster 9>&- 2>/dev/null; fi
    dockerd_stop
    rm -rf "$KIND_DIR"/{ready,kubeconfig,kubecache,helm,cluster.yaml,daemon.json}
    say "kind is down"
}

cmd_kind_exec() {
    need_root
    recorded "$KIND_DIR/dockerd.pid" >/dev/null || die "kind is not up: run 'cluster kind-up'"
    [ $# -gt 0 ] || die "which command?"
    kind_exec "$@"
}
