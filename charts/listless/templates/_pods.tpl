{{/* The common settings of all pods. */}}

{{/* Metadata of a pod template: (list . "injector" values). */}}
{{- define "listless.podMetadata" -}}
{{- $root := index . 0 }}
{{- $part := index . 1 }}
{{- $values := index . 2 }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- include "listless.selectorLabels" (list $root $part) | nindent 2 }}
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  app.kubernetes.io/part-of: listless
  {{- with $root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  # Injectors skip pods with this label.
  listless.dev/component: {{ $part }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The placement of pods: (list . "injector" values). */}}
{{- define "listless.placement" -}}
{{- $root := index . 0 }}
{{- $part := index . 1 }}
{{- $values := index . 2 }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- with $values.affinity }}
  {{- toYaml . | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "listless.selectorLabels" (list $root $part) | nindent 12 }}
{{- end }}
topologySpreadConstraints:
{{- with $values.topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
{{- else }}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "listless.selectorLabels" (list $root $part) | nindent 6 }}
{{- end }}
{{- end }}

{{/* Fails if a pod cannot listen on its ports: (list "injector" values). */}}
{{- define "listless.checkPorts" -}}
{{- $part := first . }}
{{- $values := last . }}
{{- if eq (int $values.port) (int $values.healthPort) }}
{{- fail (printf "%s.port and %s.healthPort are both %d: set different ports" $part $part (int $values.port)) }}
{{- end }}
{{- end }}

{{- define "listless.logArguments" -}}
- --log={{ .Values.log.filter }}
- --log-format={{ .Values.log.format }}
{{- end }}

{{/* The egress of a NetworkPolicy: DNS and the apiserver. */}}
{{- define "listless.egress" -}}
- ports:
  - {port: 53, protocol: UDP}
  - {port: 53, protocol: TCP}
- ports:
  {{- range .apiserverPorts }}
  - {port: {{ . }}, protocol: TCP}
  {{- end }}
{{- end }}
