{{/* Permissions derived from the configuration's rules. */}}

{{/* RBAC rules for a list of resources, by group. */}}
{{- define "listless.gateway.rules" -}}
{{- $groups := dict }}
{{- range . }}
{{- $parts := splitList "." . }}
{{- $group := rest $parts }}
{{- /* deployments.v1.apps names a version, which RBAC does not use. */}}
{{- if and $group (regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?$" (first $group)) }}
{{- $group = rest $group }}
{{- end }}
{{- $group = join "." $group }}
{{- $_ := set $groups $group (append (default list (get $groups $group)) (first $parts) | uniq) }}
{{- end }}
{{- range $group, $resources := $groups }}
- apiGroups: [{{ $group | quote }}]
  resources:
  {{- toYaml ($resources | sortAlpha) | nindent 2 }}
  verbs: [list, watch]
{{- end }}
{{- end }}

{{/* The resources of the rules as YAML: `everywhere` is a list of resources, `namespaces` has such a list for each. */}}
{{- define "listless.gateway.named" -}}
{{- $everywhere := list }}
{{- $namespaces := dict }}
{{- range (dig "cache" "rules" list .Values.gateway.configuration) }}
{{- $rule := . }}
{{- if ne (default "onDemand" $rule.start) "never" }}
{{- range $rule.resources }}
{{- if eq . "*" }}
{{- fail "gateway.configuration.cache.rules: \"*\" would need permissions on everything, including secrets: name the resources, or set gateway.rbac to false and create the roles yourself" }}
{{- end }}
{{- end }}
{{- if hasKey $rule "namespaces" }}
{{- range $rule.namespaces }}
{{- $_ := set $namespaces . (concat (default list (get $namespaces .)) $rule.resources) }}
{{- end }}
{{- else }}
{{- $everywhere = concat $everywhere $rule.resources }}
{{- end }}
{{- end }}
{{- end }}
{{- dict "everywhere" $everywhere "namespaces" $namespaces | toYaml }}
{{- end }}

{{/* Not empty if a rule names a group that is not built in: its APIService must then be read. */}}
{{- define "listless.gateway.foreign" -}}
{{- /* The groups of is_built_in_group in src/api/field/kinds.rs; other groups below k8s.io are custom. */}}
{{- $builtIn := list
  ""
  "admissionregistration.k8s.io"
  "apiextensions.k8s.io"
  "apiregistration.k8s.io"
  "apps"
  "authentication.k8s.io"
  "authorization.k8s.io"
  "autoscaling"
  "batch"
  "certificates.k8s.io"
  "coordination.k8s.io"
  "discovery.k8s.io"
  "events.k8s.io"
  "flowcontrol.apiserver.k8s.io"
  "internal.apiserver.k8s.io"
  "networking.k8s.io"
  "node.k8s.io"
  "policy"
  "rbac.authorization.k8s.io"
  "resource.k8s.io"
  "scheduling.k8s.io"
  "storage.k8s.io"
  "storagemigration.k8s.io"
}}
{{- range . }}
{{- $group := regexReplaceAll "^[^.]*\\.?(v[0-9]+((alpha|beta)[0-9]+)?(\\.|$))?" . "" }}
{{- if not (has $group $builtIn) }}
{{- . }}
{{- end }}
{{- end }}
{{- end }}
