{{/* The labels that Helm users expect. Selectors do not have them, so that they may change. */}}
{{- define "nodekeeper.helmLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | quote }}
{{- end }}

{{/* The labels of most objects. */}}
{{- define "nodekeeper.labels" -}}
{{ include "nodekeeper.helmLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels of what Prometheus selects: monitoring.labels win over commonLabels. */}}
{{- define "nodekeeper.monitoringLabels" -}}
{{ include "nodekeeper.helmLabels" . }}
{{- with merge (deepCopy .Values.monitoring.labels) .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The image of a program: (list . "watcher"). A digest belongs to the version of the chart, not to a tag of yours. */}}
{{- define "nodekeeper.image" -}}
{{- $root := index . 0 -}}
{{- $program := index . 1 -}}
{{- $image := $root.Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
nodekeeper-{{ $program }}:{{ $image.tag | default $root.Chart.AppVersion -}}
{{- if not $image.tag }}{{ with index $image.digests $program }}@{{ . }}{{ end }}{{ end -}}
{{- end }}

{{/* The flags of a program that the values add to those of the manifests, as a list in YAML: (list . "watcher"). */}}
{{- define "nodekeeper.args" -}}
{{- $root := index . 0 -}}
{{- $program := index . 1 -}}
{{- $args := list -}}
{{- with $root.Values.preserve.taints }}{{ $args = append $args (printf "--preserve-taints=%s" (join "," .)) }}{{ end -}}
{{- with $root.Values.preserve.annotations }}{{ $args = append $args (printf "--preserve-annotations=%s" (join "," .)) }}{{ end -}}
{{- $args = concat $args $root.Values.extraArgs -}}
{{- if ne $program "watcher" }}{{ $args = concat $args $root.Values.restoreArgs }}{{ end -}}
{{- $args = concat $args (index $root.Values $program).extraArgs -}}
{{- if $args }}{{ toYaml $args }}{{ end -}}
{{- end }}

{{/* The nodes that the pods may run on. */}}
{{- define "nodekeeper.nodes" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.controlPlaneOnly }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - key: node-role.kubernetes.io/control-plane
              operator: Exists
{{- else }}{{ with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}{{ end }}
{{- end }}

{{/* Where the pods of a program run: (list . "watcher"). A constraint without a labelSelector spreads the program's own pods. */}}
{{- define "nodekeeper.scheduling" -}}
{{- $root := index . 0 -}}
{{- $own := dict "matchLabels" (dict "app.kubernetes.io/name" (index . 1) "app.kubernetes.io/part-of" "nodekeeper") -}}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- include "nodekeeper.nodes" $root }}
tolerations:
  - key: node-role.kubernetes.io/control-plane
    operator: Exists
  - key: node.kubernetes.io/not-ready
    operator: Exists
    effect: NoExecute
    tolerationSeconds: 30
  - key: node.kubernetes.io/unreachable
    operator: Exists
    effect: NoExecute
    tolerationSeconds: 30
  {{- with $root.Values.tolerations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $constraint := deepCopy . }}
  {{- if not (get . "labelSelector") }}
  {{- $_ := set $constraint "labelSelector" $own }}
  {{- if not (hasKey . "matchLabelKeys") }}{{ $_ := set $constraint "matchLabelKeys" (list "pod-template-hash") }}{{ end }}
  {{- end }}
  - {{- toYaml $constraint | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Not empty if a ConfigMap is a record or a transaction: other products put ConfigMaps into every namespace. */}}
{{- define "nodekeeper.isOurs" -}}
{{- $labels := dig "metadata" "labels" (dict) . -}}
{{- if or (eq (get $labels "app.kubernetes.io/managed-by") "nodekeeper") (hasKey (dig "data" (dict) .) "labels_restored") (contains "nodekeeper.dev/" (keys $labels | join " ")) }}yes{{ end -}}
{{- end }}
