{{/* Names, labels and the image. */}}

{{- define "listless.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "listless.fullname" -}}
{{- $name := include "listless.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "listless.injector" -}}
{{ include "listless.fullname" . }}-injector
{{- end }}

{{- define "listless.gateway" -}}
{{ include "listless.fullname" . }}-gateway
{{- end }}

{{/* The name of cluster-scoped objects: two releases of one name may exist in two namespaces. */}}
{{- define "listless.injector.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "listless.injector" .) }}
{{- end }}

{{- define "listless.gateway.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "listless.gateway" .) }}
{{- end }}

{{- define "listless.injector.serviceAccount" -}}
{{- $account := .Values.injector.serviceAccount }}
{{- if and .Values.injector.rbac (not $account.create) (not $account.name) }}
{{- fail "injector.serviceAccount: set name, or create; else every pod of the namespace would have the permissions of injector.rbac" }}
{{- end }}
{{- $own := ternary (include "listless.injector" .) "default" .Values.injector.serviceAccount.create }}
{{- default $own .Values.injector.serviceAccount.name }}
{{- end }}

{{- define "listless.gateway.serviceAccount" -}}
{{- $account := .Values.gateway.serviceAccount }}
{{- if and .Values.gateway.rbac (not $account.create) (not $account.name) }}
{{- fail "gateway.serviceAccount: set name, or create; else every pod of the namespace would have the permissions of gateway.rbac" }}
{{- end }}
{{- $own := ternary (include "listless.gateway" .) "default" .Values.gateway.serviceAccount.create }}
{{- default $own .Values.gateway.serviceAccount.name }}
{{- end }}

{{- define "listless.injector.secret" -}}
{{ include "listless.injector" . }}-certificate
{{- end }}

{{- define "listless.gateway.tlsSecret" -}}
{{- default (printf "%s-tls" (include "listless.gateway" .)) .Values.gateway.tls.secretName }}
{{- end }}

{{- define "listless.image" -}}
{{- with .Values.image }}
{{- $reference := printf "%s/%s" .registry .repository }}
{{- if .digest }}
{{- printf "%s@%s" $reference .digest }}
{{- else }}
{{- printf "%s:%s" $reference (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The labels of the objects of a part: (list . "injector"). */}}
{{- define "listless.labels" -}}
{{- $root := first . }}
{{- $part := last . }}
{{- include "listless.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: listless
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "listless.selectorLabels" -}}
{{- $root := first . -}}
app.kubernetes.io/name: {{ include "listless.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* The number of replicas: (list . values). */}}
{{- define "listless.replicas" -}}
{{- $root := first . }}
{{- max (last . ).replicas (ternary 2 0 $root.Values.highAvailability) }}
{{- end }}
