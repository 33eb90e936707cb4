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
- --image={{ include "listless.image" . }}
{{- range $injector.imagePullSecrets }}
- --image-pull-secret={{ .name }}
{{- end }}
{{ include "listless.logArguments" . }}
{{- range $injector.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
