#!/usr/bin/env bash
# dockerd-init.sh: a Docker daemon as the first process of its own network, mount, pid, uts and ipc namespaces. lib/kind.sh starts it, with
# ROOT, KIND_DIR and KIND_NS in the environment.
set -u
mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run # hides the sockets of other daemons, and is where this one's files go
for folder in /opt /etc; do           # the daemon makes /opt/containerd and a key in /etc/docker: in memory
    mkdir -p "/run/over/$folder"/{upper,work}
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=/run/over/$folder/upper,workdir=/run/over/$folder/work" "$folder" || true
done
echo 1 >/proc/sys/net/ipv4/ip_forward
# kind takes the node's address from the interface of the default route; this one leads nowhere.
ip link add up0 type veth peer name up1
ip addr add 192.168.99.1/24 dev up0
ip link set up0 up
ip link set up1 up
ip route add default via 192.168.99.2
exec dockerd --config-file "$KIND_DIR/daemon.json" --data-root "$KIND_DIR/docker" --exec-root /run/docker -H "unix://$KIND_DIR/docker.sock" \
    -p /run/docker.pid --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "/$KIND_NS" --add-runtime "capped=$ROOT/capped-runc" --default-runtime capped
