# shellcheck shell=bash
# The wires. Network namespaces, each with CLUSTER_NAME- before it: lan holds the bridge that is the nodes' network, n1, n2, ... are the
# nodes, cli is the client outside, rt the router:
#
#   without router   cli .100 ── bridge ── n1 .11, n2 .12, ...       all in LAN/24
#   with router      cli .100 ── .1 rt .1 ── bridge ── n1, n2, ...   OUTSIDE/24 before the router, LAN/24 behind it
#
# The router only forwards: no address is translated. A program in rt can delay and lose.

# namespaces PATTERN: the namespaces of this cluster
namespaces() { ip netns list 2>/dev/null | awk '{print $1}' | grep -E "^$CLUSTER_NAME-$1\$" || true; }

add_ns() {
    ip netns add "$CLUSTER_NAME-$1"
    ip -n "$CLUSTER_NAME-$1" link set lo up
}

# delete_ns NAME...: ends what still runs in these namespaces, then removes them
delete_ns() {
    local name pid
    for name in "$@"; do
        for pid in $(ip netns pids "$name" 2>/dev/null); do kill -9 "$pid" 2>/dev/null || true; done
        ip netns del "$name" 2>/dev/null || true
    done
}

# plug NAME INTERFACE ADDRESS: a cable from that namespace to the bridge. The hardware address follows from the other one, so that a node
# that comes back is still the one in its neighbours' tables.
plug() {
    local mac
    # shellcheck disable=SC2046,SC2183
    mac=$(printf '02:00:%02x:%02x:%02x:%02x' $(tr . ' ' <<<"$3"))
    ip -n "$CLUSTER_NAME-lan" link add "p-$1" type veth peer name "$2" address "$mac" netns "$CLUSTER_NAME-$1"
    ip -n "$CLUSTER_NAME-lan" link set "p-$1" master br0 up
    ip -n "$CLUSTER_NAME-$1" addr add "$3/24" dev "$2"
    ip -n "$CLUSTER_NAME-$1" link set "$2" up
}

client_address() { if [ -n "$ROUTER" ]; then echo "$OUTSIDE.100"; else echo "$LAN.100"; fi; }
# The nodes' way out.
gateway_address() { if [ -n "$ROUTER" ]; then echo "$LAN.1"; else echo "$LAN.100"; fi; }
# The namespace whose routes decide which node a flow goes to.
balancer() { if [ -n "$ROUTER" ]; then echo rt; else echo cli; fi; }

net_up() {
    add_ns lan
    ip -n "$CLUSTER_NAME-lan" link add br0 type bridge
    ip -n "$CLUSTER_NAME-lan" link set br0 up
    in_ns lan sh -c 'echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables'
    add_ns cli
    if [ -n "$ROUTER" ]; then
        add_ns rt
        plug rt lan "$LAN.1"
        ip -n "$CLUSTER_NAME-rt" link add cli type veth peer name eth0 netns "$CLUSTER_NAME-cli"
        ip -n "$CLUSTER_NAME-rt" addr add "$OUTSIDE.1/24" dev cli
        ip -n "$CLUSTER_NAME-rt" link set cli up
        ip -n "$CLUSTER_NAME-cli" addr add "$OUTSIDE.100/24" dev eth0
        ip -n "$CLUSTER_NAME-cli" link set eth0 up
        ip -n "$CLUSTER_NAME-cli" route add default via "$OUTSIDE.1"
        # No reverse-path filter: packets that a program sends back through a TUN device arrive "from the wrong side".
        # shellcheck disable=SC2016
        in_ns rt sh -c 'cd /proc/sys/net/ipv4; echo 1 >ip_forward; for f in conf/*/rp_filter; do echo 0 >$f; done'
    else
        plug cli eth0 "$LAN.100"
    fi
    # Several next hops (`lb`) are chosen by address and port.
    in_ns "$(balancer)" sh -c 'echo 1 >/proc/sys/net/ipv4/fib_multipath_hash_policy'
}

# net_node_up NUMBER
net_node_up() {
    local other
    add_ns "n$1"
    plug "n$1" eth0 "$LAN.1$1"
    # bridge-nf-call-iptables: Pods of one node that talk through a Service answer across the bridge, which must undo the translation.
    in_ns "n$1" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables'
    ip -n "$CLUSTER_NAME-n$1" route add default via "$(gateway_address)" # kubelet and API server want a default route to exist
    for ((other = 1; other <= NODES; other++)); do
        [ "$other" = "$1" ] || ip -n "$CLUSTER_NAME-n$1" route add "$PODS.$other.0/24" via "$LAN.1$other"
    done
    # Pods reach the outside under their node's address, and each other under their own.
    in_ns "n$1" nft -f - <<RULES
table ip egress {
  chain postrouting {
    type nat hook postrouting priority srcnat + 10;
    ip saddr $PODS.0.0/16 ip daddr != $PODS.0.0/16 oifname "eth0" masquerade
  }
}
RULES
}

# load_kernel_modules: loads the modules that are not part of the kernel. The machine's own bridges stay without netfilter.
load_kernel_modules() {
    local setting
    modprobe -q overlay 2>/dev/null || true
    if [ ! -e /proc/sys/net/bridge ]; then
        modprobe -q br_netfilter 2>/dev/null || die "the kernel lacks bridge netfilter (module br_netfilter)"
        for setting in /proc/sys/net/bridge/bridge-nf-call-*; do echo 0 >"$setting"; done
    fi
}
