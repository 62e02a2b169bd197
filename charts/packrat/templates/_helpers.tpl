{{- define "packrat.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "packrat.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "packrat.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "packrat.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "packrat.operator" -}}
{{ include "packrat.fullname" . }}-operator
{{- end }}

{{- define "packrat.selectorLabels" -}}
app.kubernetes.io/name: {{ include "packrat.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "packrat.labels" -}}
{{ include "packrat.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "packrat.serviceAccount" -}}
{{- default (ternary (include "packrat.operator" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- /* The registry of an image, or nothing: call with (dict "image" .Values.image "global" .Values.global) */}}
{{- define "packrat.registry" -}}
{{- default .global.imageRegistry .image.registry }}
{{- end }}

{{- /* An image: call with (dict "image" .Values.image "global" .Values.global "version" .Chart.AppVersion) */}}
{{- define "packrat.image" -}}
{{- with include "packrat.registry" . }}{{ . }}/{{ end }}
{{- .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .version .image.tag }}{{ end }}
{{- end }}

{{- /* When an image is pulled: call as packrat.registry. A name without a registry, in a registry's value or in front of the repository, is
never pulled: it would be Docker Hub's, which is not ours */}}
{{- define "packrat.pullPolicy" -}}
{{- $hasRegistry := or (include "packrat.registry" .) (regexMatch "^([^/]*[.:][^/]*|localhost)/" .image.repository) }}
{{- default (ternary "IfNotPresent" "Never" (not (empty $hasRegistry))) .image.pullPolicy }}
{{- end }}

{{- /* imagePullSecrets of a Pod of the chart, or nothing */}}
{{- define "packrat.pullSecrets" -}}
{{- with concat .Values.global.imagePullSecrets .Values.imagePullSecrets | uniq -}}
imagePullSecrets:
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Annotations by which a Prometheus without its operator finds a page: call with the port and the path */}}
{{- define "packrat.scrapeAnnotations" -}}
prometheus.io/scrape: "true"
prometheus.io/port: {{ index . 0 | quote }}
prometheus.io/path: {{ index . 1 }}
{{- end }}

{{- /* Changes to gateways' objects, as JSON: the values', over the annotations for scrapers */}}
{{- define "packrat.gatewayPatches" -}}
{{- $patches := dict }}
{{- if .Values.scrapeAnnotations }}
{{- $annotations := include "packrat.scrapeAnnotations" (list "9902" "/stats/prometheus") | fromYaml }}
{{- range list "Deployment" "DaemonSet" }}
{{- $_ := set $patches . (dict "spec" (dict "template" (dict "metadata" (dict "annotations" (deepCopy $annotations))))) }}
{{- end }}
{{- end }}
{{- with mergeOverwrite $patches (deepCopy .Values.gateway.patches) }}{{ toJson . }}{{ end }}
{{- end }}

{{- /* The namespaces in which the operator may make gateways, as JSON */}}
{{- define "packrat.gatewayNamespaces" -}}
{{- $names := concat (list .Release.Namespace) .Values.gateway.namespaces }}
{{- range $name, $gateway := .Values.edgeGateways }}
{{- $names = append $names (default $.Release.Namespace $gateway.namespace) }}
{{- end }}
{{- uniq $names | sortAlpha | toJson }}
{{- end }}

{{- /* Of these, as JSON, the namespaces that are missing or end. In them no object can be made: the release leaves its objects out instead
of failing half way. Without a cluster (`helm template`) none is missing */}}
{{- define "packrat.missingNamespaces" -}}
{{- $missing := list }}
{{- if lookup "v1" "Namespace" "" "kube-system" }}
{{- range include "packrat.gatewayNamespaces" . | fromJsonArray }}
{{- $found := lookup "v1" "Namespace" "" . }}
{{- if and (ne . $.Release.Namespace) (or (not $found) (dig "metadata" "deletionTimestamp" "" $found)) }}
{{- $missing = append $missing . }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $missing }}
{{- end }}

{{- /* Fails when an upgrade takes the operator's rights away from namespaces with EdgeGateways of its class: they would get no configuration
any more */}}
{{- define "packrat.noneIsLeftOut" -}}
{{- if .Release.IsUpgrade }}
{{- $names := include "packrat.gatewayNamespaces" . | fromJsonArray }}
{{- $binding := printf "%s-gateways" (include "packrat.operator" .) }}
{{- range (lookup "packrat.dev/v1alpha1" "EdgeGateway" "" "").items }}
{{- $namespace := .metadata.namespace }}
{{- if and (eq $.Values.class (dig "spec" "class" "packrat" .)) (not (has $namespace $names)) }}
{{- $found := lookup "rbac.authorization.k8s.io/v1" "RoleBinding" $namespace $binding }}
{{- if or (not $found) (eq (dig "metadata" "labels" "app.kubernetes.io/managed-by" "" $found) "Helm") }}
{{- fail (printf "EdgeGateway %s/%s is in a namespace that gateway.namespaces does not name: the operator would have no rights there. Add %s to gateway.namespaces, or set gateway.clusterWide=true" $namespace .metadata.name $namespace) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Keeps of a gateway's series those alone that rules and alerts need, unless dashboards need them all */}}
{{- define "packrat.essentialSeries" -}}
{{- $usual := ternary "all" "essential" .Values.dashboards.enabled -}}
{{- if eq (default $usual .Values.podMonitor.series) "essential" -}}
metricRelabelings:
- {action: keep, sourceLabels: [__name__], regex: {{ .Files.Get "rules/essential.txt" | trim | quote }}}
{{- end }}
{{- end }}

{{- /* The chart's resource definitions that the cluster has: kubectl stops at a name that it does not know */}}
{{- define "packrat.knownDefinitions" -}}
{{- $known := list }}
{{- range list "edgegateways.packrat.dev" "gatewayparameters.packrat.dev" "packratpolicies.packrat.dev" }}
{{- if lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" . }}{{ $known = append $known . }}{{ end }}
{{- end }}
{{- join " " $known }}
{{- end }}

{{- /* Fails when a resource definition of the cluster is not this release's to change, and explains how the release adopts it: Helm's own
message does not. Call with (dict "name" NAME "Release" .Release) */}}
{{- define "packrat.ownsDefinition" -}}
{{- $found := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .name }}
{{- if $found }}
{{- $known := include "packrat.knownDefinitions" . }}
{{- $release := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found }}
{{- $namespace := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $found }}
{{- if and $release (not (and (eq $release .Release.Name) (eq $namespace .Release.Namespace))) }}
{{- fail (printf "the resource definition %s belongs to the release %s in %s. If that release is still there, set crds.enabled=false for this one; if it is gone, or shall give the definitions up, let this one adopt them: kubectl annotate --overwrite crd %s meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s" .name $release $namespace $known .Release.Name .Release.Namespace) }}
{{- end }}
{{- if or (not $release) (ne (dig "metadata" "labels" "app.kubernetes.io/managed-by" "" $found) "Helm") }}
{{- fail (printf "the resource definition %s is there, but not of a release: a chart of version 0.1.0, kubectl or another tool has made it. Set crds.enabled=false if that tool shall go on to upgrade it, or let this release adopt the definitions: kubectl label --overwrite crd %s app.kubernetes.io/managed-by=Helm && kubectl annotate --overwrite crd %s meta.helm.sh/release-name=%s meta.helm.sh/release-namespace=%s" .name $known $known .Release.Name .Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Fails when the release would make objects of definitions that it is about to install itself, which Helm cannot. Without a cluster
(`helm template`) the definitions are unknown, and no object is refused */}}
{{- define "packrat.hasDefinitions" -}}
{{- $isThere := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "edgegateways.packrat.dev" }}
{{- $cluster := lookup "v1" "Namespace" "" "kube-system" }}
{{- if and $cluster (not $isThere) }}
{{- fail "edgeGateways, gatewayClass.parameters and gateway.defaults make objects whose definitions are not in the cluster yet, and Helm cannot install both at once. Either install the chart without these values, and then upgrade it with them, or apply the definitions before: kubectl apply --server-side -f charts/packrat/definitions, with crds.enabled=false from then on" }}
{{- end }}
{{- end }}
