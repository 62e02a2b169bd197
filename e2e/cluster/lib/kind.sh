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
    until_ok 60 kind_exec docker version 9>&- || { tail "$KIND_DIR/dockerd.log" >&2; die "dockerd does not start"; }
}

dockerd_stop() {
    end "$KIND_DIR/preload.pid"
    end "$KIND_DIR/dockerd.pid"
    delete_ns "$KIND_NS"
    remove_cgroups "$KIND_NS"
    rm -f "$KIND_DIR/docker.sock"
}

# --- the image of nodes

# kind_rootfs: Debian with what kind's own image of nodes has, from this machine's apt sources
kind_rootfs() {
    local codename mirror proxy packages
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v c="$codename" '$1 == "Debian" && $2 == c && $3 == "main" {print $4; exit}')
    [ -n "$mirror" ] || { echo "no apt source for Debian $codename (main); run apt-get update"; return 1; }
    proxy=$(apt-config shell p Acquire::http::Proxy | sed "s/^p='\(.*\)'$/\1/")
    packages=systemd,systemd-sysv,conntrack,iptables,nftables,iproute2,ethtool,mount,kmod,libseccomp2,pigz,procps,ca-certificates,jq,containerd,runc,socat
    rm -rf "$KIND_DIR/rootfs.part"
    env ${proxy:+http_proxy="$proxy"} unshare -m --propagation private \
        debootstrap --variant=minbase --include="$packages" "$codename" "$KIND_DIR/rootfs.part" "$mirror" || return 1
    rm -rf "$KIND_DIR"/rootfs.part/var/cache/apt/archives/*.deb "$KIND_DIR"/rootfs.part/var/lib/apt/lists/* "$KIND_DIR/rootfs"
    mv "$KIND_DIR/rootfs.part" "$KIND_DIR/rootfs"
}

# kind_images FOLDER ROOT: archives of the images that kubeadm asks for. One image, by many names, has all of Kubernetes, and what kube-proxy
# calls: nft and iptables with their libraries, from the root file system.
kind_images() {
    local image=$1/image root=$2 file library names
    mkdir -p "$image"/usr/{local/bin,sbin} "$1/archives"
    install -d -m 1777 "$image/tmp"
    cp -P "$BIN"/{kubernetes,etcd,kube-*} "$image/usr/local/bin/"
    for file in /usr/sbin/nft /usr/sbin/xtables-nft-multi; do
        for library in $file $(chroot "$root" ldd $file | grep -o '/[^ ]*') $(cd "$root" && find usr/lib/*/xtables ! -type d -printf '/%p '); do
            install -D "$root$(chroot "$root" readlink -f "$library")" "$image$library"
        done
    done
    for file in ip{,6}tables{,-save,-restore}; do ln -s xtables-nft-multi "$image/usr/sbin/$file"; done
    names=$("$BIN/kubeadm" config images list --kubernetes-version "$KUBE_VERSION") || return 1
    "$ROOT/../../tools/image-archive" "$image" "$1/archives/kubernetes.tar" "$(grep -v -e /coredns -e /pause <<<"$names" | paste -sd,)" \
        '{"Env": ["PATH=/usr/local/bin:/usr/sbin"]}' &&
        program_image coredns "$(grep /coredns <<<"$names")" "$1/archives/coredns.tar" &&
        cp "$IMAGES/pause.tar" "$1/archives/"
}

# kind_node_root ROOT BASE: what kind's own build of the image does with its base files, without what cannot work here
kind_node_root() {
    local root=$1 base=$2 file unit units=$1/etc/systemd/system
    cp -r --no-preserve=mode,ownership "$base"/etc/. "$root/etc/"
    mkdir -p "$root"/{kind/bin,opt/cni/bin,etc/kubernetes/manifests,etc/cni/net.d} "$units/multi-user.target.wants"
    install -m 755 "$base"/kind/bin/* "$root/kind/bin/"
    install -m 755 "$base/usr/local/bin/entrypoint" "$root/usr/local/bin/entrypoint"
    # Kubelet wants three settings of the whole machine, as in node-init.sh.
    sed -i "s!^\( *\)log_info 'starting init'!\1/kind/bin/settings\n&!" "$root/usr/local/bin/entrypoint"
    grep -q /kind/bin/settings "$root/usr/local/bin/entrypoint" || { echo "kind's entrypoint has changed"; return 1; }
    cat >"$root/kind/bin/settings" <<'SCRIPT'
#!/bin/bash
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
    file=/kind/settings/${setting%=*}
    mkdir -p "${file%/*}"
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${setting%=*}"
done
SCRIPT
    chmod 755 "$root/kind/bin/settings"
    printf %s "$KUBE_VERSION" >"$root/kind/version"
    sed -i -e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/; /base_runtime_spec/d' \
        -e 's/tolerate_missing_hugepages_controller = true/tolerate_missing_hugetlb_controller = true\n  disable_hugetlb_controller = true/' \
        -e 's#sandbox_image = .*#sandbox_image = "local/pause:1"#' -e '/proxy_plugins/d; /fuse-overlayfs/d; /type = "snapshot"/d' \
        "$root/etc/containerd/config.toml"
    rm -f "$units/containerd-fuse-overlayfs.service"
    for file in containerd ctr containerd-shim-runc-v2; do ln -sf /usr/bin/$file "$root/usr/local/bin/$file"; done
    cp -P "$BIN"/{kubernetes,kubelet,kubeadm,kubectl} "$root/usr/bin/"
    cp "$BIN"/cni/* "$root/opt/cni/bin/"
    rm -f "$root"/etc/cni/net.d/* "$root"/lib/systemd/system/sysinit.target.wants/systemd-tmpfiles-setup.service \
        "$root"/lib/systemd/system/{multi-user,local-fs,basic}.target.wants/* "$root"/etc/systemd/system/*.wants/* \
        "$root"/lib/systemd/system/sockets.target.wants/*{udev,initctl}*
    echo ReadKMsg=no >>"$root/etc/systemd/journald.conf"
    # What kind_network leaves, after a restart of the node, too.
    printf '[Service]\nType=oneshot\nExecStart=/bin/sh /kind/pod-network\n[Unit]\nConditionPathExists=/kind/pod-network\n' >"$units/pod-network.service"
    for unit in kubelet containerd undo-mount-hacks pod-network; do
        ln -sf "/etc/systemd/system/$unit.service" "$units/multi-user.target.wants/$unit.service"
    done
    # These would write settings of the whole machine.
    for unit in binfmt sysctl udevd udev-trigger modules-load hwdb-update random-seed; do ln -sf /dev/null "$units/systemd-$unit.service"; done
}

# kind_preload ROOT FOLDER: puts the archives into the containerd store of the root file system, to be unpacked on first use
kind_preload() {
    local root=$1 folder=$2 rc=0 archive
    cat >"$folder/containerd.toml" <<CONFIG
version = 2
root = "$root/var/lib/containerd"
state = "$folder/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "$folder/containerd.sock"
CONFIG
    rm -rf "$root/var/lib/containerd"
    spawn "$KIND_DIR/preload.pid" "$BUILD_LOG" containerd -c "$folder/containerd.toml"
    until_ok 20 ctr -a "$folder/containerd.sock" version || rc=1
    for archive in "$folder"/archives/*.tar; do
        ctr -a "$folder/containerd.sock" -n k8s.io images import --no-unpack "$archive" || rc=1
    done
    end "$KIND_DIR/preload.pid"
    return $rc
}

kind_image() {
    local folder=$TMP/node root=$TMP/node/root base
    base=$(go mod download -json "sigs.k8s.io/kind@$KIND_VERSION" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')/images/base/files
    [ -d "$base" ] || { echo "kind's base files are not in its module"; return 1; }
    mkdir -p "$folder"
    cp -a --reflink=auto "$KIND_DIR/rootfs" "$root" && kind_images "$folder" "$root" && kind_node_root "$root" "$base" &&
        kind_preload "$root" "$folder" || return 1
    tar -C "$root" -c . | kind_exec docker import -c "ENV container=docker" \
        -c 'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]' - "$KIND_IMAGE.new" || return 1
    kind_exec docker tag "$KIND_IMAGE.new" "$KIND_IMAGE" && kind_exec docker rmi "$KIND_IMAGE.new" && kind_exec docker image prune -f
}

# kind_made_of: the stamp of the image
kind_made_of() {
    echo "$KIND_VERSION $(cat "$CLUSTER_HOME"/stamps/{kubernetes,coredns,cni-plugins,pause,kind-rootfs} | sha256sum | cut -c1-16)" \
        "$(hash_of lib/kind.sh)"
}

cmd_kind_build() {
    need_root
    check_kind_machine
    start_build kind
    (cmd_build)
    go_tool kind "$KIND_VERSION" "$BIN" sigs.k8s.io/kind
    [ -d "$KIND_DIR/rootfs" ] || {
        mkdir -p "$KIND_DIR"
        step "kind: Debian root file system (debootstrap, about 90 s)" kind_rootfs
        stamp kind-rootfs "$(date +%s)"
    }
    local made_of
    made_of=$(kind_made_of)
    if ! stamped kind-image "$KIND_DIR/docker" "$made_of"; then
        ! recorded "$KIND_DIR/dockerd.pid" >/dev/null || die "kind is up: run 'cluster kind-down' before a new image of nodes is built"
        trap 'dockerd_stop; rm -rf "$TMP"' EXIT
        dockerd_start
        step "kind: image of nodes $KIND_IMAGE" kind_image
        dockerd_stop
        stamp kind-image "$made_of"
    fi
    say "built: $KIND_IMAGE"
}

# --- the cluster

# kind_network: a flat Pod network. Each node gets a bridge for its Pods, and a route to those of every other node.
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
    lock kind 20
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
    until_ok 60 kind_network 9>&- || die "the nodes get no networks for Pods"
    kind_exec kubectl wait --for=condition=Ready nodes --all --timeout=120s 9>&- >/dev/null || die "a node is not Ready"
    kind_exec kubectl -n kube-system rollout status deploy/coredns --timeout=120s 9>&- >/dev/null || die "CoreDNS does not start"
    : >"$KIND_DIR/ready"
    say "up: use 'cluster kind-exec kubectl ...'"
}

cmd_kind_down() {
    need_root
    lock kind 20
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
