# shellcheck shell=bash disable=SC2153
# The image of kind's nodes.

# kind_rootfs: Debian or Ubuntu with what kind's own image of nodes has, from this machine's apt sources
kind_rootfs() {
    local id codename mirror proxy packages
    # shellcheck source=/dev/null
    read -r id codename < <(. /etc/os-release && echo "$ID $VERSION_CODENAME")
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk -v id="$id" -v c="$codename" 'tolower($1) == id && $2 == c && $3 == "main" {print $4; exit}')
    [ -n "$mirror" ] || { echo "no apt source for $id $codename (main); run apt-get update"; return 1; }
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
    # Runs the script that kind_network leaves, also after a restart of the node.
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
    until_ok 300 ctr -a "$folder/containerd.sock" version || rc=1
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
        "$(hash_of lib/kind-image.sh)"
}

cmd_kind_build() {
    need_root
    check_kind_machine
    start_build kind
    (cmd_build)
    go_tool kind "$KIND_VERSION" "$BIN" sigs.k8s.io/kind
    [ -d "$KIND_DIR/rootfs" ] || {
        mkdir -p "$KIND_DIR"
        step "kind: root file system (debootstrap, about 90 s)" kind_rootfs
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
