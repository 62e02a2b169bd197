# shellcheck shell=bash disable=SC2034
# Places, names and addresses, for the commands and for a node's first process.

CLUSTER_HOME=${CLUSTER_HOME:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/packrat-cluster}
[[ $CLUSTER_HOME == /* ]] || CLUSTER_HOME=$PWD/$CLUSTER_HOME
CLUSTER_NAME=${CLUSTER_NAME:-pk}
[[ $CLUSTER_NAME =~ ^[a-z][a-z0-9]{0,7}$ ]] || { echo "cluster: CLUSTER_NAME must be 1 to 8 lower-case letters and digits" >&2; exit 2; }

LAN=10.99.0      # /24: the nodes .11 to .19, the router .1, the client .100 when there is no router
OUTSIDE=10.99.1  # /24: the client .100 behind the router .1
PODS=10.244      # /16: node N has PODS.N.0/24
SERVICES=10.96   # /16

# shellcheck source=/dev/null
. "$ROOT/../../tools/versions.env"
KUBE_VERSION=$(sed -n 's#^\tk8s.io/kubernetes ##p' "$ROOT/src/kubernetes/go.mod")

BIN=$CLUSTER_HOME/bin
IMAGES=$CLUSTER_HOME/images
STATE=$CLUSTER_HOME/state/$CLUSTER_NAME
SOCKET=/run/node/containerd.sock # in the node's own /run
export PATH=$PATH:/usr/sbin:/sbin

# The shape that `up` was given.
NODES=0 KUBELETS='' ROUTER=''
# shellcheck source=/dev/null
[ ! -f "$STATE/config" ] || . "$STATE/config"
