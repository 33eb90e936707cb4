{{/* The command line of the injector. */}}

{{/* A quantity as an argument; JSON writes a large number without an exponent. */}}
{{- define "listless.injector.quantity" -}}
{{ toJson . | trimAll "\"" }}
{{- end }}

{{- define "listless.injector.arguments" -}}
{{- $injector := .Values.injector }}
{{- include "listless.checkPorts" (list "injector" $injector) }}
{{- $address := .Values.listenAddress -}}
- injector
- --listen={{ $address }}:{{ $injector.port }}
- --health={{ $address }}:{{ $injector.healthPort }}
- --namespace={{ .Release.Namespace }}
- --service={{ include "listless.injector" . }}
- --secret={{ include "listless.injector.secret" . }}
- --webhook-configuration={{ include "listless.injector.clusterName" . }}
{{- range $injector.webhook.excludedNamespaces }}
- --exclude-namespace={{ . }}
{{- end }}
{{- with $injector.webhook.url }}
- --name={{ (urlParse .).hostname }}
{{- end }}
{{- if not $injector.events }}
- --no-events
{{- end }}
{{- with $injector.sidecar }}
- --image={{ default (include "listless.image" $) .image }}
{{- range .imagePullSecrets }}
- --image-pull-secret={{ .name }}
{{- end }}
- --mode={{ .mode }}
- --freshness={{ .freshness }}
{{- /* The sidecar's ports for probes and operators. */}}
{{- if has (int .port) (list 16020 16021) }}
{{- fail (printf "injector.sidecar.port: the sidecar uses port %d for probes or operators: set another port" (int .port)) }}
{{- end }}
- --port={{ .port }}
- --sidecar-health-address={{ ternary "[::]" "0.0.0.0" (hasPrefix "[" $address) }}
- --cpu-request={{ include "listless.injector.quantity" .resources.requests.cpu }}
- --cpu-limit={{ include "listless.injector.quantity" .resources.limits.cpu }}
- --memory-request={{ include "listless.injector.quantity" .resources.requests.memory }}
- --memory-limit={{ include "listless.injector.quantity" .resources.limits.memory }}
- --revision={{ .revision }}
{{- end }}
{{ include "listless.logArguments" . }}
{{- range $injector.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
