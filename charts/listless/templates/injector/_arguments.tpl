{{/* The command line of the injector. */}}

{{- define "listless.injector.arguments" -}}
{{- $injector := .Values.injector }}
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
- --port={{ .port }}
- --sidecar-health-address={{ ternary "[::]" "0.0.0.0" (hasPrefix "[" $address) }}
- --cpu-request={{ .resources.requests.cpu }}
- --cpu-limit={{ .resources.limits.cpu }}
- --memory-request={{ .resources.requests.memory }}
- --memory-limit={{ .resources.limits.memory }}
- --revision={{ .revision }}
{{- end }}
{{ include "listless.logArguments" . }}
{{- range $injector.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
