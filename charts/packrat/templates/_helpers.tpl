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

{{- /* An image: call with (dict "image" .Values.image "version" .Chart.AppVersion) */}}
{{- define "packrat.image" -}}
{{- with .image.registry }}{{ . }}/{{ end }}
{{- .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ default .version .image.tag }}{{ end }}
{{- end }}

{{- /* What the operator makes for an EdgeGateway, in its namespace */}}
{{- define "packrat.gatewayRules" -}}
- apiGroups: [""]
  resources: [services]
  verbs: [create, patch, delete]
- apiGroups: [""]
  resources: [configmaps, serviceaccounts]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
- apiGroups: [apps]
  resources: [deployments, daemonsets]
  verbs: [get, create, patch, delete]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [get, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, patch]
- apiGroups: [packrat.dev]
  resources: [edgegateways/finalizers]
  verbs: [update]
{{- end }}
