# shellcheck shell=bash
# Builds everything from source. Each product has a stamp, and is moved into place whole: an interrupted build loses only the step that it
# was in, and Go's build cache keeps most of that.

# stamped NAME PRODUCT STAMP: succeeds if PRODUCT is there and of this STAMP
stamped() { [ -e "$2" ] && [ "$(cat "$CLUSTER_HOME/stamps/$1" 2>/dev/null)" = "$3" ]; }
# stamp NAME STAMP
stamp() { mkdir -p "$CLUSTER_HOME/stamps" && echo "$2" >"$CLUSTER_HOME/stamps/$1"; }
# hash_of FILE...: of files and folders here
hash_of() { (cd "$ROOT" && find "$@" -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16); }

# step LABEL CMD...: runs CMD with its output in the log and a sign of life every 30 seconds
step() {
    local label=$1 next
    shift
    say "$label"
    "$@" >>"$BUILD_LOG" 2>&1 9>&- &
    STEP_PID=$! next=$((EPOCHSECONDS + 30))
    while kill -0 "$STEP_PID" 2>/dev/null; do
        sleep 0.2
        [ "$EPOCHSECONDS" -lt $next ] || {
            say "  ... still at it: $label"
            next=$((EPOCHSECONDS + 30))
        }
    done
    wait "$STEP_PID" || {
        tail -n 30 "$BUILD_LOG" >&2
        die "failed: $label (log: $BUILD_LOG)"
    }
    STEP_PID=''
}

# start_build NAME: takes the lock NAME, however long another checkout's first build takes, and makes a folder for work, TMP
start_build() {
    lock "$1" 3600
    mkdir -p "$BIN/cni" "$IMAGES" "$CLUSTER_HOME/log"
    BUILD_LOG=$CLUSTER_HOME/log/$1.log TMP=$CLUSTER_HOME/tmp/$1 STEP_PID=''
    : >"$BUILD_LOG"
    rm -rf "$TMP"
    mkdir -p "$TMP/go"
    trap 'rm -rf "$TMP"' EXIT
    trap '[ -z "$STEP_PID" ] || kill "$STEP_PID" 2>/dev/null; exit 130' INT TERM HUP
    export CGO_ENABLED=0 GOBIN='' GOTMPDIR=$TMP/go GO111MODULE=on GOWORK=off GOFLAGS="${GOFLAGS:-} -buildvcs=false"
}

# go_program NAME LABEL [LINKER-FLAGS]: a program whose module is src/NAME
go_program() {
    local made_of
    made_of=$(hash_of "src/$1")
    stamped "$1" "$BIN/$1" "$made_of" && return
    step "$1: $2" go build -C "$ROOT/src/$1" -mod=readonly -trimpath -ldflags "-s -w ${3:-}" -o "$TMP/$1" .
    mv "$TMP/$1" "$BIN/$1"
    stamp "$1" "$made_of"
}

# go_tool NAME VERSION FOLDER PACKAGE...: programs of a published module
go_tool() {
    local name=$1 version=$2 folder=$3
    shift 3
    stamped "$name" "$folder/$(basename "${!#}")" "$version" && return
    mkdir -p "$TMP/out"
    step "$name $version: fetching and compiling" env -C "$TMP" GOBIN="$TMP/out" go install -trimpath -ldflags '-s -w' "${@/%/@$version}"
    mv "$TMP"/out/* "$folder/"
    stamp "$name" "$version"
}

# The version that the programs report; Kubernetes' own builds set it in the same way.
kube_version_flags() {
    local package
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf -- "-X $package.%s " "gitVersion=$KUBE_VERSION" gitMajor=1 "gitMinor=$(cut -d. -f2 <<<"$KUBE_VERSION")" \
            gitTreeState=clean buildDate=1970-01-01T00:00:00Z
    done
}

build_pause() {
    local made_of
    made_of=$(hash_of src/pause.c)
    stamped pause "$BIN/pause" "$made_of" && return
    step "pause: compiling" cc -O2 -Wall -Wextra -Werror -static -s -o "$TMP/pause" "$ROOT/src/pause.c"
    mv "$TMP/pause" "$BIN/pause"
    stamp pause "$made_of"
}

# program_image NAME NAME:TAG ARCHIVE: an image of one program
program_image() {
    mkdir -p "$TMP/$1-image"
    cp "$BIN/$1" "$TMP/$1-image/"
    "$ROOT/../../tools/image-archive" "$TMP/$1-image" "$3" "$2" "{\"Entrypoint\": [\"/$1\"]}"
}

# node_image NAME: an image that every node has; made again when its program is newer
node_image() {
    [ "$IMAGES/$1.tar" -nt "$BIN/$1" ] || step "image local/$1:1" program_image "$1" "local/$1:1" "$IMAGES/$1.tar"
}

cmd_build() {
    "$ROOT/../../tools/check-toolchain" go
    need_programs deps "${BUILD_PROGRAMS[@]}"
    start_build build
    build_pause
    go_tool cni-plugins "$CNI_PLUGINS_VERSION" "$BIN/cni" \
        github.com/containernetworking/plugins/plugins/{main/bridge,main/loopback,ipam/host-local,meta/portmap}
    go_program coredns "fetching and compiling"
    go_tool helm "$HELM_VERSION" "$BIN" helm.sh/helm/v3/cmd/helm
    go_program kubernetes "fetching and compiling $KUBE_VERSION (5 minutes on two idle cores, once)" "$(kube_version_flags)"
    local name
    for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl kubeadm; do
        ln -sfn kubernetes "$BIN/$name"
    done
    node_image pause
    node_image coredns
    say "built: $CLUSTER_HOME ($(du -sch "$BIN" "$IMAGES" | awk 'END {print $1}'))"
}

need_build() {
    local file
    for file in "$BIN"/{kubernetes,helm,cni/portmap} "$IMAGES"/{pause,coredns}.tar; do
        [ -e "$file" ] || die "${file#"$CLUSTER_HOME"/} is not built: run 'cluster build'"
    done
}
