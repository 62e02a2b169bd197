# shellcheck shell=bash
# One node: its certificates and its processes.

# k ARGS: kubectl for the commands themselves
k() { KUBECONFIG=$STATE/admin.conf KUBECACHEDIR=$STATE/kubecache in_ns n1 "$BIN/kubectl" "$@" 9>&-; }

# kubeadm_config NODE: the input of kubeadm's phases, which make certificates and kubeconfigs
kubeadm_config() {
    cat >"$STATE/kubeadm-$1.yaml" <<CONFIG
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: $LAN.11, bindPort: 6443}
nodeRegistration: {name: $1, criSocket: "unix://$SOCKET"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: $KUBE_VERSION
certificatesDir: $STATE/pki
controlPlaneEndpoint: "$LAN.11:6443"
encryptionAlgorithm: ECDSA-P256
networking: {serviceSubnet: "$SERVICES.0.0/16", podSubnet: "$PODS.0.0/16"}
apiServer: {certSANs: ["127.0.0.1", "$LAN.11"]}
CONFIG
}

make_certificates() {
    local i name phase=("$BIN/kubeadm" init phase)
    mkdir -p "$STATE/kubeconfig"
    kubeadm_config n1
    in_ns n1 "${phase[@]}" certs all --config "$STATE/kubeadm-n1.yaml"
    for name in super-admin controller-manager scheduler; do
        in_ns n1 "${phase[@]}" kubeconfig $name --config "$STATE/kubeadm-n1.yaml" --kubeconfig-dir "$STATE/kubeconfig"
    done
    for ((i = 1; i <= NODES; i++)); do
        kubeadm_config "n$i"
        mkdir -p "$STATE/n$i"
        in_ns n1 "${phase[@]}" kubeconfig kubelet --config "$STATE/kubeadm-n$i.yaml" --kubeconfig-dir "$STATE/n$i"
    done
    mv "$STATE/kubeconfig/super-admin.conf" "$STATE/admin.conf"
} >>"$STATE/log/certificates.log" 2>&1

# node_start NUMBER
node_start() {
    mkdir -p "$STATE/n$1/log"
    export CLUSTER_HOME CLUSTER_NAME
    # (not `ip netns exec`: it remounts /sys and hides the cgroups.) The end of unshare or of its child ends the whole node.
    spawn "$STATE/n$1.pid" "$STATE/n$1/log/init.log" nsenter --net="/run/netns/$CLUSTER_NAME-n$1" \
        unshare --mount --pid --uts --ipc --propagation private --fork --kill-child --mount-proc "$BASH" "$ROOT/node-init.sh" "$1"
}

# node_stop NUMBER: as when the power is cut; its disk stays
node_stop() {
    end "$STATE/n$1.pid"
    delete_ns "$CLUSTER_NAME-n$1"
    remove_cgroups "$CLUSTER_NAME-n$1"
}

# node_number N|nN: prints the number
node_number() {
    local number=${1#n}
    if ! [[ $number =~ ^[1-9]$ ]] || [ "$number" -gt "$NODES" ]; then die "no node '$1' (there are $NODES)"; fi
    echo "$number"
}

# node_live NUMBER: its kubelet has renewed its lease since this command began, and it is Ready (Ready alone may be the old word)
node_live() {
    local renewed
    renewed=$(k -n kube-node-lease get lease "n$1" -o 'jsonpath={.spec.renewTime}') || return 1
    [ "$(date -d "$renewed" +%s)" -ge $((STARTED / 1000000)) ] && k wait --for=condition=Ready "node/n$1" --timeout=1s
}
