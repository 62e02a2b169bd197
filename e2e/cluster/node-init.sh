#!/usr/bin/env bash
# node-init.sh NUMBER: the first process of a node, in network, mount, pid, uts and ipc namespaces of its own. `up` and `node-up` start it.
set -u
ROOT=${BASH_SOURCE[0]%/*}
# shellcheck source=/dev/null
. "$ROOT/lib/settings.sh"
name=n$1 address=$LAN.1$1 folder=$STATE/n$1 cgroup=$CLUSTER_NAME-n$1
export PATH=$BIN:$PATH
mkdir -p "$folder"/{log,kubelet,containerd,cni,var-log,var-lib,volume-plugins}
hostname "$name"

# --- Files: nothing is written outside of the folder. /run is in memory (sockets, lock files), /var/log and /var/lib lie in the folder.
mount --make-rshared / # containers' mounts propagate within this node only
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/node /run/lock
mount --bind "$folder/var-log" /var/log
mount --bind "$folder/var-lib" /var/lib
mkdir -p /var/log/pods /var/log/containers
# Kubelet wants three settings of the whole machine, and writes only the ones that differ. It reads files that agree already, so that the
# machine's own stay as they are. (A read-only /proc/sys would make kubelet give up.)
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
    file=$folder/sysctl/${setting%=*}
    mkdir -p "${file%/*}"
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${setting%=*}"
done
echo "nameserver $(if [ -n "$ROUTER" ]; then echo "$LAN.1"; else echo "$LAN.100"; fi)" >"$folder/resolv.conf" # nothing answers there: names outside the cluster fail at once

# --- Control groups: a directory for this node, in each hierarchy with version 1
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    for controller in cpuset cpu io memory pids hugetlb; do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
    done 2>/dev/null
    mkdir -p "/sys/fs/cgroup/$cgroup"
else
    for hierarchy in /sys/fs/cgroup/{cpu,cpuacct,cpuset,memory,devices,freezer,blkio,pids,systemd}; do
        [ ! -d "$hierarchy" ] || mkdir -p "$hierarchy/$cgroup"
    done
    for file in cpuset.cpus cpuset.mems; do cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$cgroup/$file"; done
fi

# oom_score, restrict_oom_score_adj: without CAP_SYS_RESOURCE no score below the current one can be set.
cat >"$folder/containerd.toml" <<CONFIG
version = 2
root = "$folder/containerd"
state = "/run/node/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "$SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "local/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    discard_unpacked_layers = true
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$BIN/cni"
    conf_dir = "$folder/cni"
CONFIG

# The node's Pod network is fixed here, so the controller manager allocates none.
cat >"$folder/cni/10-bridge.conflist" <<CONFIG
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true, "promiscMode": false,
   "ipam": {"type": "host-local", "dataDir": "/run/node/ipam", "ranges": [[{"subnet": "$PODS.$1.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
CONFIG

# cgroupRoot: several kubelets share one kernel. KubeletInUserNamespace: forgives settings of the machine that cannot be written.
# cacheUnauthorizedTTL: otherwise logs and exec stay Forbidden for 30 s when the first call came before the role binding.
# maxOpenFiles: the hard limit; oomScoreAdj: as above.
cat >"$folder/kubelet.yaml" <<CONFIG
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$STATE/pki/ca.crt"}}
authorization: {mode: Webhook, webhook: {cacheUnauthorizedTTL: 1s}}
clusterDomain: cluster.local
clusterDNS: ["$SERVICES.0.10"]
resolvConf: "$folder/resolv.conf"
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
cgroupsPerQOS: true
enforceNodeAllocatable: [pods]
failSwapOn: false
failCgroupV1: false
featureGates: {KubeletInUserNamespace: true}
containerRuntimeEndpoint: unix://$SOCKET
evictionHard: {memory.available: "200Mi", nodefs.available: "1Gi", imagefs.available: "1Gi"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 4s
syncFrequency: 10s
shutdownGracePeriod: 0s
oomScoreAdj: 0
maxOpenFiles: $(ulimit -Hn | sed 's/unlimited/1000000/')
podLogsDir: /var/log/pods
volumePluginDir: "$folder/volume-plugins"
CONFIG

# conntrack: nf_conntrack_max cannot be written outside the machine's first network namespace.
cat >"$folder/kube-proxy.yaml" <<CONFIG
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: "$STATE/admin.conf"}
mode: nftables
clusterCIDR: $PODS.0.0/16
hostnameOverride: $name
oomScoreAdj: 0
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
CONFIG

# run PROGRAM ARGS: beside this process, with a log
run() { "$@" >>"$folder/log/$1.log" 2>&1 & }

if [ "$1" = 1 ]; then
    pki=$STATE/pki config=$STATE/kubeconfig
    run etcd --name n1 --data-dir "$folder/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster n1=http://127.0.0.1:2380 \
        --unsafe-no-fsync --log-level warn
    run kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --advertise-address="$address" --secure-port=6443 \
        --service-cluster-ip-range="$SERVICES.0.0/16" --allow-privileged=true \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
        --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
        --kubelet-client-certificate="$pki/apiserver-kubelet-client.crt" --kubelet-client-key="$pki/apiserver-kubelet-client.key" \
        --kubelet-preferred-address-types=InternalIP --service-account-issuer=https://kubernetes.default.svc.cluster.local \
        --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
        --proxy-client-cert-file="$pki/front-proxy-client.crt" --proxy-client-key-file="$pki/front-proxy-client.key" \
        --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
        --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User
    # Controllers that start before the API answers sit out a back-off of some seconds.
    until kubectl --kubeconfig="$STATE/admin.conf" --cache-dir="$STATE/kubecache" get --raw /readyz >/dev/null 2>&1; do sleep 0.1; done
    # kube-api-qps: each controller asks for itself at the start; the default limit makes that 5 s.
    controllers=$config/controller-manager.conf
    run kube-controller-manager --kubeconfig="$controllers" --authentication-kubeconfig="$controllers" --authorization-kubeconfig="$controllers" \
        --bind-address=127.0.0.1 --client-ca-file="$pki/ca.crt" --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
        --root-ca-file="$pki/ca.crt" --service-account-private-key-file="$pki/sa.key" --use-service-account-credentials=true \
        --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --allocate-node-cidrs=false --service-cluster-ip-range="$SERVICES.0.0/16" \
        --leader-elect=false --kube-api-qps=200 --kube-api-burst=400
    run kube-scheduler --kubeconfig="$config/scheduler.conf" --authentication-kubeconfig="$config/scheduler.conf" \
        --authorization-kubeconfig="$config/scheduler.conf" --bind-address=127.0.0.1 --leader-elect=false
fi
if [ -n "$KUBELETS" ]; then
    run containerd -c "$folder/containerd.toml"
    for image in pause coredns; do
        until ctr -a "$SOCKET" -n k8s.io images import "$IMAGES/$image.tar" >>"$folder/log/import.log" 2>&1; do sleep 0.1; done
    done
    run kubelet --config="$folder/kubelet.yaml" --kubeconfig="$folder/kubelet.conf" --root-dir="$folder/kubelet" \
        --hostname-override="$name" --node-ip="$address" --v=2
    run kube-proxy --config="$folder/kube-proxy.yaml" --v=2
fi
trap 'exit 0' TERM INT
while :; do wait -n 2>/dev/null || sleep 1; done # as the first process it inherits, and must reap, every orphan
